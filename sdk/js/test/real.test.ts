// The client with a real tend, also while its roles are killed and upgraded.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { Client, GapError, newID, type Process, type ProcessEvent } from '@tend/client';
import { Daemon, until } from '../../daemon.js';
import { registry } from './registry.js';

const daemon = await Daemon.start();
const client = await Client.connect({ url: daemon.socket });
const sha = (b: Uint8Array) => createHash('sha256').update(b).digest('hex');

async function drain(readable: Readable): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of readable) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

test('a command: output, exit status, input, environment, directory', async () => {
  for (const url of [daemon.socket, daemon.url]) {
    const c = await Client.connect({ url });
    const r = await c.run({ shell: 'cat; echo "$A" >&2; pwd; exit 3', env: { A: 'x y', B: undefined }, dir: '/usr' }, { input: 'in ' });
    assert.equal(r.stdout.toString(), 'in /usr\n');
    assert.equal(r.stderr.toString(), 'x y\n');
    assert.equal(r.exitCode, 3);
    assert.equal(r.success, false);
    assert.ok(c.server.version && c.server.instance);
    c.close();
  }
  await until(async () => (await client.list()).length === 0, 'what run started is forgotten');
});

test('a signal, a timeout and an abort', async () => {
  assert.equal((await client.run({ shell: 'kill -SEGV $$' })).exitCode, 139);
  for (let timeout = 300; ; timeout *= 10) {
    const late = await client.run({ shell: 'trap "" TERM; echo on; sleep 600 & wait; sleep 600', timeout });
    assert.equal(late.exitCode, 124);
    assert.equal(late.exit.cause, 'timeout');
    if (late.stdout.toString() === 'on\n') break;
    assert.ok(timeout < 30_000, 'it never began in its time');
  }
  const stop = new AbortController();
  const run = client.run({ argv: ['sleep', '600'] }, { signal: stop.signal });
  await until(async () => (await client.list({ live: true })).length > 0, 'it runs');
  stop.abort();
  assert.equal((await run).exit.cause, 'killed');
  const sooner = new AbortController();
  const starting = client.run({ argv: ['sleep', '600'] }, { signal: sooner.signal });
  sooner.abort(); // its start is on the way
  assert.equal((await starting).exit.cause, 'killed');
  await until(async () => (await client.list({ live: true })).length === 0, 'nothing runs any more');
});

test('a write that is given up holds nobody up', async () => {
  for (const url of [daemon.socket, daemon.url]) {
    const c = await Client.connect({ url });
    const first = await client.start({ argv: ['cat'], stdin: 'pipe' });
    const second = await c.get({ id: first.id });
    await second.signal(os.constants.signals.SIGSTOP);
    const stop = new AbortController();
    const wrote = first.write('a'.repeat(8 << 20), { signal: stop.signal });
    await until(async () => (await second.refresh()).stdin.accepted >= 512 << 10, 'parts of it are accepted');
    stop.abort();
    await assert.rejects(wrote, { name: 'AbortError' });
    await second.signal(os.constants.signals.SIGCONT);
    await second.write('b', { signal: AbortSignal.timeout(8000) }); // else it waits for ten seconds
    await second.closeStdin();
    const all = (await drain(second.output('stdout'))).toString();
    assert.match(all, /^a+b$/);
    c.close();
  }
});

test('the newest bytes are kept', async () => {
  const r = await client.run({ shell: 'seq 1 10000' }, { maxOutput: 100 });
  assert.equal(r.stdout.length, 100);
  assert.ok(r.stdout.toString().endsWith('9999\n10000\n'));
  assert.equal(r.stdoutDropped, 48_894 - 100);
});

test('one id starts once', async () => {
  const id = newID();
  const spec = { id, argv: ['sleep', '600'], labels: { mine: 'yes' }, name: 'napper' };
  const [a, b] = await Promise.all([client.start(spec), client.start(spec)]);
  assert.equal(a.pid, b.pid);
  await assert.rejects(client.start({ id, argv: ['sleep', '601'] }), { code: 'exists' });
  assert.deepEqual((await client.list({ labels: { mine: 'yes' } })).map((i) => i.id), [id]);
  assert.equal((await client.get({ name: 'napper' })).id, id);
  assert.equal((await client.get({ pid: a.pid })).id, id);
  assert.deepEqual(await a.kill(), { killed: true, survivors: [] });
  assert.deepEqual(await b.kill(), { killed: false, survivors: [] });
  await a.remove();
  await assert.rejects(a.refresh(), { code: 'not_found' });
});

test('what is asked for at the end of a process', async () => {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'tend-exit-')), 'ended');
  const p = await client.start({ shell: 'exit 3', labels: { a: 'b' }, onExit: `echo $TEND_EXIT_STATUS > ${file}.new && mv ${file}.new ${file}` });
  await until(() => fs.existsSync(file), 'the command runs');
  assert.equal(fs.readFileSync(file, 'utf8'), '3\n');
  await until(async () => !(await p.refresh()).pinned, 'what nobody has asked to pin is not pinned');
  await assert.rejects(client.start({ shell: 'true', onExitUrl: 'ftp://x' }), { code: 'invalid', field: 'onExitUrl' });
  await assert.rejects(client.run({ shell: 'true', onExit: 'true' }), { code: 'invalid', field: 'onExit' });
  const { sandbox } = await client.openSandbox({ name: 'ends', isolation: 'none' });
  await assert.rejects(sandbox.processes.start({ shell: 'true', onExitUrl: 'http://x/' }), { code: 'invalid', field: 'onExit' });
  await sandbox.destroy();
  for (const left of await client.list({ labels: { a: 'b' } })) await client.attach(left).remove();
  fs.rmSync(path.dirname(file), { recursive: true });
});

test('what cannot be started says why', async () => {
  await assert.rejects(client.start({ argv: ['/no/such'] }), { code: 'start', reason: 'not_found', what: '/no/such' });
  await assert.rejects(client.start({ argv: ['true'], dir: '/no/such' }), { code: 'start', reason: 'bad_dir', what: '/no/such' });
  await assert.rejects(client.start({ argv: ['true'], shell: 'true' }), { code: 'invalid' });
});

test('a list of many pages', async () => {
  const label = { many: newID() };
  const big = 'x'.repeat(300_000);
  for (let i = 0; i < 20; i++) await client.start({ argv: ['true'], labels: { ...label, n: String(i), big }, retention: { ttl: 60_000 } });
  const all = await client.list({ labels: label });
  assert.deepEqual(all.map((i) => i.spec.labels!.n), Array.from({ length: 20 }, (_, i) => String(i)));
});

test('waits: text, silence, a port, the end of the tree', async () => {
  const p = await client.start({ argv: [process.execPath, '-e', 'console.log("ready"); require("net").createServer().listen(0, "127.0.0.1", function () { console.log("on " + this.address().port); })'] });
  const ready = await p.wait({ match: /on (\d+)/ });
  assert.ok(ready.met && ready.stream === 'stdout');
  const port = Number(ready.match!.toString().split(' ')[1]);
  const on = await p.wait({ port });
  assert.deepEqual(on.listening.map((l) => l.pid), [p.pid]);
  assert.equal((await p.wait({ quiet: 50 })).met, true);
  await p.kill();
  const end = await p.wait();
  assert.equal(end.exit?.signal, 9);
  assert.equal((await p.wait({ match: 'never' })).met, false);
});

test('views: head and tail, lines that match, escape sequences taken away', async () => {
  const p = await client.start({ shell: "seq 1 1000; printf '\\033[31mred\\033[0m\\n' >&2" });
  await p.wait({ eof: true });
  const [head, left, tail] = await p.view({ head: { lines: 1 }, tail: { lines: 1 }, streams: ['stdout'] });
  assert.deepEqual([head!.text.toString(), left!.omitted, tail!.text.toString()], ['1\n', 'middle', '1000\n']);
  assert.deepEqual([left!.from, left!.to], [head!.to, tail!.from]);
  assert.equal(Buffer.concat((await p.view({ streams: ['stderr'], strip: true })).map((x) => x.text)).toString(), 'red\n');
  const found = await p.grep(/^99[89]$/, { before: 1 });
  assert.deepEqual(found.map((m) => m.kind === 'match' && [m.text.toString(), m.context, m.line]), [['997', true, 997], ['998', false, 998], ['999', false, 999]]);
  await assert.rejects(p.grep('('), { code: 'invalid' });
  await assert.rejects(p.view({ head: { lines: -1 } }), { code: 'invalid' });
});

test('files of a sandbox', async () => {
  const { sandbox } = await client.openSandbox({ name: 'files', isolation: 'none' });
  const { files } = sandbox;
  const data = randomBytes(700_000);
  const entry = await files.write('d/f', data);
  assert.deepEqual([entry.size, entry.type], [data.length, 'file']);
  assert.equal((await files.read('d/f')).compare(data), 0);
  assert.equal((await drain(Readable.from(files.stream('d/f', { from: 699_990 })))).compare(data.subarray(-10)), 0);
  await files.write('d/f', 'short');
  assert.equal((await files.read('d/f')).toString(), 'short');
  await files.write('empty', '');
  assert.equal((await files.read('empty')).length, 0);
  await files.mkdir('e');
  await assert.rejects(files.mkdir('e'), { code: 'exists' });
  await files.move('d/f', 'e/g');
  assert.deepEqual((await files.list('.', { depth: 2 })).map((e) => e.name), ['d', 'e', 'g', 'empty']);
  assert.equal((await files.as('root').stat('e/g')).size, 5);
  await files.remove('e');
  await files.remove('e');
  await assert.rejects(files.read('e/g'), { code: 'not_found' });
  await sandbox.destroy();
});

test('files of the machine, and directories there and back', async (t) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'tend-dirs-'));
  t.after(() => fs.rmSync(dir, { recursive: true, force: true }));
  const at = (...names: string[]) => path.join(dir, ...names);
  const { files } = client;
  assert.equal(await files.exists(at('m', 'f')), false);
  await files.write(at('m', 'f'), 'of the machine');
  assert.equal(fs.readFileSync(at('m', 'f'), 'utf8'), 'of the machine');
  assert.equal(await files.exists(at('m', 'f')), true);
  assert.equal(await files.exists(at('m', 'f', 'below')), false);
  await assert.rejects(files.exists(''), { code: 'invalid' });

  fs.mkdirSync(at('local', 'src', 'empty'), { recursive: true });
  fs.writeFileSync(at('local', 'src', 'run.sh'), '#!/bin/sh', { mode: 0o755 });
  fs.writeFileSync(at('local', 'long'.repeat(50)), randomBytes(3_000_000));
  fs.symlinkSync('src/run.sh', at('local', 'link'));
  fs.chmodSync(at('local', 'src'), 0o755);
  const { sandbox } = await client.openSandbox({ name: 'dirs', isolation: 'none' });
  for (const [place, remote] of [[files, at('remote')], [sandbox.files, 'a/remote']] as const) {
    const back = at(`back-${place === files}`);
    await place.uploadDir(at('local'), remote);
    assert.deepEqual(await place.downloadDir(remote, back), []);
    assert.deepEqual(tree(back), tree(at('local')));
    assert.equal(tree(back).length, 5);
  }
  await sandbox.destroy();

  fs.symlinkSync('/etc/passwd', at('remote', 'absolute'));
  fs.symlinkSync('../..', at('remote', 'src', 'up'));
  fs.writeFileSync(at('remote', 'tend-left-out.txt'), 'a file of this name');
  fs.writeFileSync(at('remote', 'src', 'run.sh'), 'new');
  await client.run({ argv: ['mkfifo', at('remote', 'fifo')] });
  const left = await files.downloadDir(at('remote'), at('back-true'));
  assert.equal(left.length, 3);
  assert.match(left.join('\n'), /absolute: a link to \/etc\/passwd.*src\/up: a link.*\/fifo"/s);
  assert.deepEqual(['src/run.sh', 'tend-left-out.txt'].map((n) => fs.readFileSync(at('back-true', n), 'utf8')), ['new', 'a file of this name']);
  assert.equal(fs.readdirSync(at('back-true')).length, 4, 'nothing else is left there');
  fs.rmSync(at('back-true', 'src'), { recursive: true });
  fs.mkdirSync(at('outside'));
  fs.symlinkSync(at('outside'), at('back-true', 'src'));
  await assert.rejects(files.downloadDir(at('remote'), at('back-true')), /outside the extraction directory/);
  assert.deepEqual(fs.readdirSync(at('outside')), []);

  await assert.rejects(files.downloadDir(at('none'), at('x')), { code: 'not_found' });
  await assert.rejects(files.uploadDir(at('none'), at('x')), { code: 'ENOENT' });
  await assert.rejects(files.uploadDir(at('local'), at('m', 'f')), /not a directory/);
});

/** What is in a directory: modes, contents and targets. */
function tree(dir: string): string[] {
  return (fs.readdirSync(dir, { recursive: true }) as string[]).sort().map((name) => {
    const file = path.join(dir, name);
    const stat = fs.lstatSync(file);
    return `${name} ${stat.mode.toString(8)} ${stat.isSymbolicLink() ? fs.readlinkSync(file) : stat.isFile() ? sha(fs.readFileSync(file)) : ''}`;
  });
}

test('a watch of files', async (t) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'tend-watch-'));
  t.after(() => fs.rmSync(dir, { recursive: true, force: true }));
  const top = path.join(dir, 'watched');
  const { files } = client;
  await assert.rejects(files.watch(top), { code: 'not_found' });
  fs.mkdirSync(top);
  const watcher = await files.watch(top, { recursive: true });
  const until = async (kind: string, name: string) => {
    for (;;) {
      const { value } = await watcher.next();
      assert.ok(value, `${kind} of ${name}`);
      if (value.kind === kind && value.path === name) return value;
    }
  };
  await files.write(path.join(top, 'a'), 'x');
  await until('create', 'a');
  await until('write', 'a');
  fs.mkdirSync(path.join(top, 'new'));
  assert.equal((await until('create', 'new')).dir, true);
  fs.writeFileSync(path.join(top, 'new', 'b'), '');
  await until('create', 'new/b');
  fs.renameSync(path.join(top, 'a'), path.join(top, 'c'));
  await until('rename', 'a');
  await until('create', 'c');
  fs.chmodSync(path.join(top, 'c'), 0o640);
  await until('chmod', 'c');
  fs.rmSync(top, { recursive: true });
  await until('remove', '.');
  await assert.rejects(watcher.next(), { code: 'not_found' });

  const names = ['a', 'b'].map((letter) => path.join(dir, letter.repeat(250)));
  for (const name of names) fs.writeFileSync(name, '');
  const lagged = await files.watch(dir);
  for (let n = 0; n < 150_000; n++) fs.chmodSync(names[n % 2]!, 0o600); // more than the connection and the server keep together
  await assert.rejects(async () => {
    for await (const event of lagged) assert.ok(event.kind);
  }, { code: 'lagged', message: /faster than they were read/ });
  await assert.rejects(lagged.next(), { code: 'lagged' });

  const closed = await files.watch(dir);
  const waits = closed.next();
  await closed.return();
  assert.equal((await waits).done, true);
  const stop = new AbortController();
  const aborted = await files.watch(dir, { signal: stop.signal });
  stop.abort();
  await assert.rejects(aborted.next(), { name: 'AbortError' });

  const own = await Daemon.start();
  const other = await Client.connect({ url: own.socket });
  const away = await other.files.watch(dir);
  await own.restart();
  await assert.rejects(away.next(), { code: 'lagged' });
  other.close();
});

test('git in a sandbox', async () => {
  const seen: (string | undefined)[] = [];
  const server = http.createServer((req, res) => {
    const sent = req.headers.authorization;
    seen.push(sent && Buffer.from(sent.replace('Basic ', ''), 'base64').toString());
    res.writeHead(sent ? 404 : 401, sent ? {} : { 'WWW-Authenticate': 'Basic realm="x"' }).end();
  });
  await new Promise<void>((ok) => server.listen(0, '127.0.0.1', ok));
  const c = await Client.connect({ url: daemon.socket });
  const { sandbox } = await c.openSandbox({ name: 'git', isolation: 'none' });
  const theirs = `${(await sandbox.files.stat('.')).path}/theirs.git`;
  const [repo, other] = [sandbox.git('a repo'), sandbox.git('other')];
  const who = { author: 'A Person', email: 'a@example.org' };
  await repo.init();
  await repo.run('init', '--quiet', '--bare', '--initial-branch=main', theirs);
  await repo.run('remote', 'add', 'origin', theirs);
  await sandbox.files.write('a repo/one file', '1');
  await sandbox.files.write('a repo/-two\nlines', '2');
  assert.deepEqual((await repo.status()).files.map((f) => [f.path, f.staged + f.unstaged]).sort(), [['-two\nlines', '??'], ['one file', '??']]);
  await repo.add();
  const first = await repo.commit('-m is no flag', who);
  assert.equal(await repo.run('log', '-1', '--format=%H %an %ae %s'), `${first} A Person a@example.org -m is no flag\n`);
  await repo.push();
  await other.clone(theirs, { branch: 'main' });
  await repo.checkout('next', { create: true });
  await repo.run('mv', 'one file', 'moved');
  assert.deepEqual((await repo.status()).files, [{ path: 'moved', from: 'one file', staged: 'R', unstaged: '.' }]);
  await repo.commit('second', who);
  assert.deepEqual(await repo.branches(), ['main', 'next']);
  await repo.checkout('main');
  await repo.run('merge', '--quiet', 'next');
  assert.deepEqual(await repo.status(), { branch: 'main', upstream: 'origin/main', ahead: 1, behind: 0, files: [] });
  await repo.push({ branch: 'main' });
  await other.pull();
  assert.equal((await sandbox.files.read('other/moved')).toString(), '1');
  await assert.rejects(repo.checkout('nowhere'), { code: 'command', exitCode: 128, message: /^git switch --quiet --no-guess nowhere ended with 128: fatal: invalid reference: nowhere$/ });
  await assert.rejects(repo.clone('https://me:secret@example.org/r'), { code: 'invalid', field: 'url' });
  await assert.rejects(repo.push({ remote: 'https://me:sec%ret@example.org/r' }), { code: 'invalid', field: 'remote' });
  for (const branch of ['--discard-changes', '+main', ':main', 'main:other']) {
    for (const asked of [repo.clone('x', { branch }), repo.checkout(branch), repo.pull({ branch }), repo.push({ branch })]) await assert.rejects(asked, { code: 'invalid', field: 'branch' });
  }
  await assert.rejects(repo.pull({ username: 'a', password: 'b\nc' }), { code: 'invalid', field: 'password' });
  const secret = { username: 'me', password: `p'"$(x) %s\\n` };
  await assert.rejects(sandbox.git('x').clone(`http://127.0.0.1:${(server.address() as { port: number }).port}/r.git`, { ...secret, depth: 1 }), /not found$/);
  assert.deepEqual(seen, [undefined, `${secret.username}:${secret.password}`]);
  await sandbox.destroy();
  c.close();
  server.close();
});

test('a port of a sandbox', async () => {
  // It echoes in upper case until the other side sends no more, and then says goodbye.
  const program = "const s = require('net').createServer({ allowHalfOpen: true }, (c) => c.on('data', (d) => c.write(String(d).toUpperCase())).on('end', () => c.end('bye'))).listen(0, '127.0.0.1', () => console.log(s.address().port))";
  for (const url of [daemon.socket, daemon.url]) {
    const c = await Client.connect({ url });
    const { sandbox } = await c.openSandbox({ name: 'port', isolation: 'none' });
    const server = await sandbox.processes.start({ argv: [process.execPath, '-e', program] });
    const port = Number((await server.wait({ match: /[0-9]+/ })).match);
    const conn = await sandbox.dial(port);
    conn.write('hello');
    const parts: Buffer[] = [];
    const whole = new Promise<void>((ok) => conn.on('data', (part: Buffer) => parts.push(part)).on('end', ok));
    await until(() => Buffer.concat(parts).toString() === 'HELLO', 'the answer');
    conn.write('x'.repeat(1_000_000));
    conn.end(); // what is on the way comes, and the answers to it
    await whole;
    assert.equal(Buffer.concat(parts).toString(), `HELLO${'X'.repeat(1_000_000)}bye`);
    await server.kill();
    await assert.rejects(sandbox.dial(port), /start a program there that listens on it/);
    await assert.rejects(sandbox.dial(0), { code: 'invalid' });
    await sandbox.destroy();
    await assert.rejects(sandbox.dial(port), { code: 'not_found' });
    c.close();
  }
});

test('images, and a sandbox of one', async () => {
  const image = await registry();
  let last = [0, 0];
  const said: string[] = [];
  const m = await client.images.pull(image.name, { say: (s) => said.push(s), progress: (...p) => (last = p) });
  assert.deepEqual([m.names, m.user, m.dir, m.env.A, m.entrypoint, m.cmd], [[image.name], '33:0', '/srv', 'b', ['/srv/run'], ['x']]);
  assert.ok(said.length > 0 && last[0]! > 0 && last[0] === last[1]);
  assert.deepEqual((await client.images.list()).map((x) => x.id), [m.id]);
  assert.equal((await client.images.get(image.name)).id, m.id);
  const sandbox = await client.createSandbox({ image: image.name, isolation: 'full' });
  assert.equal(sandbox.info.image, m.id);
  assert.equal((await sandbox.files.read('/srv/hello')).toString(), 'hi\n');
  const archive: Uint8Array[] = [];
  for await (const part of client.images.export(image.name)) archive.push(part);
  const saved = Buffer.concat(archive);
  assert.ok(saved.includes(`"RepoTags":["${image.name}"]`) && saved.includes('oci-layout') && saved.length % 512 === 0);
  await client.images.remove(image.name);
  assert.deepEqual([await client.images.prune({ all: true }), await client.images.list()], [[], []]);
  assert.equal((await sandbox.files.read('/srv/hello')).toString(), 'hi\n', 'a sandbox keeps its files');
  await sandbox.destroy();
  await assert.rejects(client.images.get('nothing'), { code: 'not_found' });
  await assert.rejects(client.images.export('nothing').next(), { code: 'not_found' });
  await assert.rejects(client.images.pull(`${image.name}0`), { code: 'not_found' });
  image.close();
});

test('services', async () => {
  await assert.rejects(client.services.apply('services: {web: {comand: x}}'), { code: 'invalid' });
  await client.services.apply('services:\n  web:\n    command: exec sleep 600\n');
  await client.services.start('web');
  for await (const [web] of client.services.watch()) {
    if (web!.phase !== 'running') continue;
    assert.equal((await client.get({ id: web!.process })).pid, web!.pid);
    break;
  }
  await assert.rejects(client.services.restart('nosuch'), { code: 'not_found' });
  await client.services.stop();
  for await (const [web] of client.services.watch()) if (web!.phase === 'idle') break;
  assert.deepEqual((await client.services.list()).map((s) => [s.name, s.adopted, s.adoptedBy]), [['web', false, undefined]]);
});

test('what is used, and was', async () => {
  await client.services.apply('services:\n  busy:\n    command: while :; do :; done\n');
  await client.services.start('busy');
  let [machine, busy] = await client.usage(['machine', 'busy']);
  // Its first point comes with the second look at it.
  await until(async () => ([machine, busy] = await client.usage(['machine', 'busy']))[1]!.points[0]?.cpu, 'it is measured');
  const [now, point] = [machine!.points[0]!, busy!.points[0]!];
  assert.deepEqual([machine!.kind, machine!.id, busy!.kind, busy!.name, busy!.points.length], ['machine', '', 'service', 'busy', 1]);
  assert.ok(machine!.cpus >= 1 && machine!.memoryTotal > now.memory && now.memory > 1 << 20 && now.received! >= 0 && now.sent! >= 0);
  assert.ok(point.cpu <= machine!.cpus + 1 && point.memory > 0 && point.received === undefined && Math.abs(+point.time! - Date.now()) < 600_000);
  assert.ok((await client.usage()).some((u) => u.name === 'busy'));
  const [past, ...others] = await client.usageHistory(3_600_000, ['machine']);
  assert.deepEqual([past!.kind, past!.cpus, others.length], ['machine', 0, 0]);
  await assert.rejects(client.usageHistory(3_600_000, ['nobody']), { code: 'not_found' });
  for (const since of [0, 86_400_001]) await assert.rejects(client.usageHistory(since), { code: 'invalid', field: 'since' });
  await assert.rejects(client.usage('machine' as never), { code: 'invalid', field: 'names' });
  await client.services.stop();
  for await (const [web] of client.services.watch()) if (web!.phase === 'idle') break;
});

test('a service that is a process which ran already', async () => {
  const theirs = spawn('sleep', ['600'], { stdio: 'ignore' });
  const pidFile = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'tend-client-')), 'web.pid');
  fs.writeFileSync(pidFile, `${theirs.pid}`);
  await client.services.apply(`services:\n  web:\n    command: exec sleep 600\n    adopt: {pid_file: ${pidFile}}\n`);
  await client.services.start('web');
  for await (const [web] of client.services.watch()) {
    if (web!.phase !== 'running') continue;
    assert.deepEqual([web!.pid, web!.adopted, web!.adoptedBy, web!.process], [theirs.pid, true, { pidFile }, '']);
    break;
  }
  await client.services.stop();
  for await (const [web] of client.services.watch()) if (web!.phase === 'idle') break;
  fs.rmSync(path.dirname(pidFile), { recursive: true });
});

test('a terminal', async () => {
  const p = await client.start({ shell: 'stty size; read x; stty size', pty: { cols: 100, rows: 30 } });
  await p.wait({ match: '30 100' });
  await p.resize(50, 20);
  await p.write('\n');
  const text = (await drain(p.output('pty'))).toString();
  assert.match(text, /30 100\r\n/);
  assert.match(text, /20 50\r\n/);
});

test('a pipeline through a process, byte for byte', async () => {
  const bytes = randomBytes(20 << 20);
  const p = await client.start({ argv: ['cat'], stdin: 'pipe' });
  const out = drain(p.output('stdout'));
  await pipeline(Readable.from((function* () { for (let i = 0; i < bytes.length; i += 100_003) yield bytes.subarray(i, i + 100_003); })()), p.input());
  assert.equal(sha(await out), sha(bytes));
  assert.deepEqual(sha(await drain(p.output('stdout', { from: { stdout: 5 } }))), sha(bytes.subarray(5)), 'and again, from another place');
});

test('bytes that retention freed are a gap', async () => {
  const p = await client.start({ shell: 'head -c 8000000 /dev/zero', retention: { limit: 1 << 20 } });
  await p.wait({ eof: true });
  await until(async () => (await p.refresh()).streams.some((s) => s.base > 0), 'some is freed');
  await assert.rejects(drain(p.output('stdout')), GapError);
  const kinds = new Set<string>();
  for await (const e of p.read()) kinds.add(e.kind);
  assert.ok(kinds.has('gap') && kinds.has('output'));
});

test('input after the end is refused', async () => {
  const p = await client.start({ argv: ['true'], stdin: 'pipe' });
  await p.wait();
  await assert.rejects(p.write('x'), { code: 'exited' });
  const q = await client.start({ argv: ['sleep', '600'] });
  await assert.rejects(q.write('x'), { code: 'stdin_closed' });
  await q.kill();
});

test('a wrong token is refused, before anything else', async () => {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'tend-ts-token-')), 'token');
  fs.writeFileSync(file, 'right-token-0123456789', { mode: 0o600 });
  const guarded = await Daemon.start('--token-file', file);
  fs.rmSync(path.dirname(file), { recursive: true });
  await assert.rejects(Client.connect({ url: guarded.url, token: 'wrong' }), { code: 'permission' });
  const c = await Client.connect({ url: guarded.url, token: 'right-token-0123456789' });
  assert.equal((await c.run({ argv: ['echo', 'in'] })).stdout.toString(), 'in\n');
  c.close();
});

// What a process wrote and how it ended, as a client tells of it.
async function follow(p: Process): Promise<{ out: Buffer; code?: number; facts: string[] }> {
  const parts: Buffer[] = [];
  const facts: string[] = [];
  let code: number | undefined;
  for await (const e of p.read({ drain: -1 }) as AsyncIterable<ProcessEvent>) {
    if (e.kind === 'output') parts.push(e.data);
    else facts.push(e.kind);
    if (e.kind === 'exited') code = e.exit.code;
  }
  return { out: Buffer.concat(parts), code, facts };
}

/** Does everything over and over: at least the given rounds, and until enough is true. */
async function underWay(c: Client, rounds: number, enough = () => true): Promise<void> {
  const lines = 4000;
  const count = 'i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo "line $i of process"; [ $((i % 400)) = 0 ] && sleep 0.1; done; exit 7';
  const want = Array.from({ length: lines }, (_, i) => `line ${i + 1} of process\n`).join('');
  for (let round = 0; round < rounds || !enough(); round++) {
    await Promise.all([
      ...[1, 2, 3].map(async () => {
        const p = await c.start({ shell: count });
        const { out, code, facts } = await follow(p);
        assert.equal(sha(out), sha(Buffer.from(want)), `${out.length} bytes of ${want.length}; ${facts.join()} ${JSON.stringify((await p.refresh()).exit)}`);
        assert.equal(code, 7);
        for (const kind of ['started', 'exited']) assert.equal(facts.filter((f) => f === kind).length, 1, kind);
        assert.equal((await p.wait()).exit?.code, 7);
        await p.remove();
      }),
      (async () => {
        const p = await c.start({ argv: ['cat'], stdin: 'pipe' });
        const bytes = randomBytes(1 << 20);
        const out = drain(p.output('stdout'));
        const writes: Promise<void>[] = [];
        for (let i = 0; i < bytes.length; i += 4099) writes.push(p.write(bytes.subarray(i, i + 4099)));
        await Promise.all(writes);
        await p.closeStdin();
        assert.equal(sha(await out), sha(bytes), 'input comes in order, once');
        assert.equal((await p.wait()).exit?.code, 0);
      })(),
      (async () => {
        for (let i = 0; i < 10; i++) assert.equal((await c.run({ shell: `echo ${i}; exit ${i}` })).stdout.toString(), `${i}\n`);
      })(),
      (async () => {
        const p = await c.start({ shell: 'sleep 600 & sleep 600' });
        assert.deepEqual(await p.kill(), { killed: true, survivors: [] });
        assert.equal((await p.wait()).exit?.signal, 9);
      })(),
    ]);
  }
}

test('while server, keeper and anchor are killed, nothing is lost or doubled', async () => {
  const c = await Client.connect({ url: daemon.socket });
  const killing = daemon.killing();
  try {
    await underWay(c, 4, () => killing.killed() > 5);
  } finally {
    await killing.stop();
  }
  c.close();
});

test('while the server is upgraded, nothing is lost or doubled', async () => {
  const c = await Client.connect({ url: daemon.url });
  let done = false;
  const upgrades = (async () => {
    let n = 0;
    for (; !done; n++) await promisify(execFile)(process.env.TEND_BIN ?? '../../bin/tend', ['upgrade'], { env: { ...process.env, TEND_URL: daemon.socket } });
    return n;
  })();
  await underWay(c, 2);
  done = true;
  assert.ok((await upgrades) > 0);
  c.close();
});

test('sandboxes: made, opened, listed, changed, stopped, paused, copied and destroyed', async () => {
  const c = await Client.connect({ url: daemon.socket });
  const box = await c.createSandbox({ name: 'one', isolation: 'full', env: { A: '1', B: undefined }, metadata: { of: 'me' }, timeout: 3_600_000, size: { tasks: 100 } });
  assert.deepEqual([box.info.state, box.info.isolation, box.info.size.tasks, box.info.metadata], ['ready', 'full', 100, { of: 'me' }]);
  assert.ok(Math.abs(box.info.deadline!.getTime() - Date.now() - 3_600_000) < 600_000);
  await assert.rejects(c.createSandbox({ name: 'one' }), { code: 'exists' });
  const again = await c.openSandbox({ name: 'one' });
  assert.deepEqual([again.created, again.sandbox.id], [false, box.id]);
  const opened = await Promise.all([1, 2, 3].map(() => c.openSandbox({ name: 'two', isolation: 'full' })));
  assert.deepEqual(opened.map((o) => o.created).sort(), [false, false, true]);
  assert.deepEqual((await c.sandboxes()).map((i) => i.name), ['one', 'two']);
  assert.deepEqual((await c.sandboxes({ metadata: { of: 'me' }, states: ['ready'] })).map((i) => i.name), ['one']);

  const p = await box.processes.start({ shell: 'echo $A$B; exec cat', stdin: 'pipe' });
  await p.write('in');
  await p.closeStdin();
  assert.equal((await drain(p.output('stdout'))).toString(), '1\nin');
  assert.deepEqual((await box.processes.list()).map((i) => i.id), [p.id]);
  assert.deepEqual(await opened[0]!.sandbox.processes.list(), []);
  await assert.rejects(opened[0]!.sandbox.processes.get({ id: p.id }), { code: 'not_found' });

  await box.processes.run({ shell: 'echo kept > /var/tmp/f' });
  await box.pause();
  await box.pause();
  await assert.rejects(box.processes.start({ shell: 'true' }), { code: 'sandbox_paused' });
  await box.resume();
  await box.stop();
  await assert.rejects(box.processes.start({ shell: 'true' }), { code: 'sandbox_stopped' });
  await box.start();
  const kept = await box.snapshot('kept');
  assert.deepEqual((await c.snapshots()).map((s) => [s.id, s.name, s.sandbox]), [[kept.id, 'kept', box.id]]);
  const from = await c.createSandbox({ snapshot: 'kept', isolation: 'full' });
  const forks = await box.fork(2);
  for (const copy of [from, ...forks]) {
    assert.ok('processes' in copy);
    assert.equal((await copy.processes.run({ shell: 'cat /var/tmp/f' })).stdout.toString(), 'kept\n');
    await copy.destroy();
    await copy.destroy();
  }
  await c.deleteSnapshot('kept');
  await c.deleteSnapshot('kept');
  assert.equal((await box.update({ name: 'uno', timeout: 0, metadata: { more: 'x' } })).deadline, undefined);
  assert.deepEqual((await c.sandbox('uno')).info.metadata, { of: 'me', more: 'x' });
  assert.ok((await box.metrics()).at(-1)!.tasks >= 0);
  assert.match((await box.portUrl(3000))!, new RegExp(`^http://3000-${box.id}[.]localhost:[0-9]+$`));
  const { token } = await box.access();
  for (const [op, made] of [['read', await box.downloadUrl('/a b+', { user: 'u' })], ['write', await box.uploadUrl('/a b+', { user: 'u', expires: 5000 })]] as const) {
    const q = new URL(made).searchParams;
    const until = Number(q.get('signature_expiration'));
    const sum = createHash('sha256').update(`/a b+:${op}:u:${token}:${until}`).digest('base64').replace(/=+$/, '');
    assert.deepEqual([new URL(made).pathname, q.get('path'), q.get('username'), q.get('signature')], ['/files', '/a b+', 'u', `v1_${sum}`]);
    assert.ok(until * 1000 > Date.now() - 60_000 && until * 1000 <= Date.now() + 3_600_000);
  }
  const file = `${(await box.files.stat('.')).path}/a file`;
  assert.equal((await fetch(await box.uploadUrl(file), { method: 'POST', body: 'by URL', headers: { 'Content-Type': 'application/octet-stream' } })).status, 200);
  assert.equal(await (await fetch(await box.downloadUrl(file))).text(), 'by URL');
  await assert.rejects(box.downloadUrl('a'), { code: 'invalid' });
  await assert.rejects(box.uploadUrl('/a', { expires: 10 }), { code: 'invalid' });
  for (const b of [box, opened[0]!.sandbox]) await b.destroy();
  await assert.rejects(box.refresh(), { code: 'not_found' });
  await assert.rejects(box.processes.start({ shell: 'true' }), { code: 'not_found' });
  c.close();
});

test('what is wrong with a sandbox that is asked for is said, and nothing is made', async () => {
  const c = await Client.connect({ url: daemon.socket });
  for (const [field, spec] of Object.entries({
    'spec.isolatoin': { isolatoin: 'full' },
    isolation: { isolation: 'Full' },
    timeout: { timeout: '1h' },
    'size.memory': { size: { memory: 1.5 } },
    'size.cpus': { size: { cpus: NaN } },
    'size.ram': { size: { ram: 1 } },
    'network.mode': { network: { mode: 'open' } },
    'shares.source': { shares: [{ source: 1 }] },
    shares: { shares: '/tmp' },
    metadata: { metadata: { a: 1 } },
    env: { env: { A: '\0' } },
    name: { name: '../x' },
    'spec': null,
  })) await assert.rejects(c.createSandbox(spec as never), (err: Error & { code?: string; field?: string }) => err.code === 'invalid' && (err.field === field || field === 'spec'), field);
  await assert.rejects(c.openSandbox({} as never), { code: 'invalid', field: 'name' });
  await assert.rejects(c.sandbox(7 as never), { code: 'invalid' });
  await assert.rejects(c.sandboxes({ states: ['dead' as never] }), { code: 'invalid' });
  const stop = AbortSignal.abort();
  for (const call of [c.createSandbox({}, stop), c.openSandbox({ name: 'x' }, stop), c.sandboxes({}, stop)]) await assert.rejects(call, { name: 'AbortError' });
  assert.deepEqual(await c.sandboxes(), []);
  c.close();
});

test('the package works for import and require', () => {
  const cjs = createRequire(import.meta.url)('@tend/client') as typeof import('@tend/client');
  assert.equal(typeof cjs.Client.connect, 'function');
  assert.notEqual(cjs.Client, Client);
});

test('the client ends with its connections, and keeps no program alive', async () => {
  const code = `import { Client } from '@tend/client'; const c = await Client.connect({ url: ${JSON.stringify(daemon.socket)} }); await c.run({ argv: ['true'] });`;
  await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], { timeout: 120_000 });
  client.close();
  await assert.rejects(client.list(), { code: 'closed' });
});
