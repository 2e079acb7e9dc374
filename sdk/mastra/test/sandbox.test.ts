// What the conformance suite leaves out: files, ports, life cycle called plainly,
// clients that share a sandbox, and what goes wrong.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { Client } from '@tend/client';
import { TendSandbox, tendSandboxProvider, type TendSandboxOptions } from '@tend/mastra';
import { Daemon, until } from '../../daemon.js';

const made: TendSandbox[] = [];
// Before the end of the daemon.
after(async () => {
  for (const s of made) await s.destroy().catch(() => {});
  client.close();
});
const daemon = await Daemon.start();
const client = await Client.connect({ url: daemon.socket });

function sandbox(options: TendSandboxOptions = {}): TendSandbox {
  const s = new TendSandbox({ url: daemon.socket, ...options });
  made.push(s);
  return s;
}

test('a sandbox has a directory of its own, which stays with its id and goes when it is destroyed', async () => {
  const a = sandbox({ id: 'dir-1' });
  assert.deepEqual(await a.start(), { outcome: 'created' });
  assert.equal(a.workingDirectory, path.join(daemon.stateDir, 'mastra/dir-1'));
  await a.executeCommand('echo kept > file');
  const b = sandbox({ id: 'dir-1' });
  assert.deepEqual(await b.start(), { outcome: 'connected' });
  assert.equal((await b.executeCommand('cat', ['file'])).stdout, 'kept\n');
  await b.destroy();
  assert.equal(fs.existsSync(a.workingDirectory!), false);
  await until(async () => (await client.list()).length === 0, 'nothing is left at the daemon');
});

test('a directory of the user stays', async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'tend-mastra-'));
  const s = sandbox({ workingDirectory: path.join(dir, 'not/there') });
  await s.executeCommand('echo kept > file');
  await s.destroy();
  assert.equal(fs.readFileSync(path.join(dir, 'not/there/file'), 'utf8'), 'kept\n');
  fs.rmSync(dir, { recursive: true });
});

test('destroy removes no directory that the sandbox did not make, and calls at once are one', async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'tend-mastra-'));
  const s = sandbox();
  s.setWorkingDirectory(dir);
  assert.equal((await s.executeCommand('pwd')).stdout, `${dir}\n`);
  const running = s.executeCommand('echo part; sleep 600');
  await until(async () => (await s.processes.list()).length > 0, 'it runs');
  await Promise.all([s.destroy(), s.destroy(), s._destroy()]);
  assert.equal(fs.existsSync(dir), true);
  assert.equal((await running).killed, true, 'its result is told, not that it is gone');
  fs.rmSync(dir, { recursive: true });
});

test('ids that are no names of directories', async () => {
  for (const id of ['../../../etc', '.', 'a/b', 'ž'.repeat(300), '-rf', 'x y\n', '']) {
    const s = sandbox({ id });
    assert.equal((await s.executeCommand('pwd')).stdout.trimEnd(), s.workingDirectory);
    assert.equal(path.dirname(s.workingDirectory!), path.join(daemon.stateDir, 'mastra'), JSON.stringify(id));
    await s.destroy();
  }
  assert.deepEqual(fs.readdirSync(path.join(daemon.stateDir, 'mastra')), []);
});

test('a sandbox sees its own processes alone', async () => {
  const [a, b] = [sandbox(), sandbox()];
  const h = await a.processes.spawn('sleep 600');
  assert.deepEqual(await b.processes.list(), []);
  assert.equal(await b.processes.get(h.pid), undefined);
  assert.equal(await b.processes.kill(h.pid), false);
  await b.destroy();
  assert.equal(h.exitCode, undefined);
});

test('what was released is in no list, while the daemon forgets it either', async () => {
  const s = sandbox();
  const handles = await Promise.all(Array.from({ length: 40 }, () => s.processes.spawn('true')));
  await Promise.all(handles.map((h) => h.wait()));
  await Promise.all(
    handles.map(async ({ pid }) => {
      s.processes.release(pid);
      for (let i = 0; i < 5; i++) assert.ok(!(await s.processes.list()).some((p) => p.pid === pid), pid);
    }),
  );
});

test('stop and destroy may be called plainly, and end what any client started, and what commands left behind', async () => {
  for (const how of ['stop', 'destroy'] as const) {
    const [a, b] = [sandbox({ id: `end-${how}` }), sandbox({ id: `end-${how}` })];
    await a.executeCommand('sleep 600 >/dev/null 2>&1 &');
    const h = await a.processes.spawn('setsid sleep 600 & exec sleep 600');
    await b.start();
    await b[how]();
    assert.equal(b.status, how === 'stop' ? 'stopped' : 'destroyed');
    const r = await h.wait();
    assert.deepEqual([r.success, r.killed, r.exitCode], [false, true, 137]);
    const left = (await client.list({ labels: { 'mastra.sandbox': `end-${how}` } })).filter((i) => !i.treeGone);
    assert.deepEqual(left, []);
    await b[how]();
  }
});

test('stop and destroy of a sandbox that was never started need no daemon', async () => {
  const s = new TendSandbox({ url: 'unix:///no/such/socket' });
  await s.stop();
  await s.destroy();
  assert.equal(s.status, 'destroyed');
});

test('without a daemon, start says so and can be tried again', async () => {
  const s = new TendSandbox({ url: 'unix:///no/such/socket' });
  await assert.rejects(s.start(), { code: 'no_daemon' });
  assert.equal(s.status, 'error');
  await assert.rejects(s.executeCommand('true'), { code: 'no_daemon' });
  await s.destroy();
});

test('a process that a second client finds is at its output so far', async () => {
  const a = sandbox({ id: 'attach' });
  const h = await a.processes.spawn('echo out; echo err >&2; exec sleep 600');
  await until(() => h.stdout && h.stderr, 'output');
  const g = (await sandbox({ id: 'attach' }).processes.get(h.pid))!;
  assert.deepEqual([g.stdout, g.stderr, g.command], ['out\n', 'err\n', h.command]);
  const [x, y] = await Promise.all(['1', '2'].map(() => sandbox({ id: 'attach' }).processes.get(h.pid)));
  assert.equal(x!.pid, y!.pid);
  assert.equal(await g.kill(), true);
  assert.equal(await g.kill(), false);
});

test('detach ends the connections alone', async () => {
  const s = sandbox({ id: 'detach' });
  const h = await s.processes.spawn('echo up; exec sleep 600');
  await until(() => h.stdout, 'output');
  await s.detach();
  await assert.rejects(h.wait(), { code: 'closed' });
  assert.equal(s.status, 'stopped');
  const g = (await s.processes.get(h.pid))!;
  assert.deepEqual([s.status, g.stdout, g.exitCode], ['running', 'up\n', undefined]);
  assert.equal(await g.kill(), true);
});

test('a callback that throws loses no output', async () => {
  const s = sandbox();
  let seen = '';
  const h = await s.processes.spawn('echo one; sleep 0.2; echo two', {
    onStdout: (d) => {
      seen += d;
      throw new Error('of the user');
    },
  });
  assert.equal((await h.wait()).stdout, 'one\ntwo\n');
  assert.equal(seen, 'one\ntwo\n');
});

test('bytes that the daemon had freed are counted as dropped', async () => {
  const s = sandbox();
  await s.start();
  const p = await client.start({ shell: 'head -c 8000000 /dev/zero | tr "\\0" x; exec sleep 600', retention: { limit: 1 << 20 }, labels: s.place.labels, stdin: 'pipe' });
  await until(async () => (await p.refresh()).streams.some((i) => i.end === 8_000_000 && i.base > 0), 'some is freed');
  const h = (await s.processes.get(String(p.pid)))!;
  assert.ok(h.stdoutDroppedBytes >= 8_000_000 - 1_048_576 && h.stdoutTruncated);
  assert.equal(h.stdoutDroppedBytes + h.stdout.length, 8_000_000);
  h.reader.resume();
  await assert.rejects(new Promise((_, no) => h.reader.on('error', no)), { code: 'gap' });
  await h.kill();
});

test('reader holds back, and writer waits', async () => {
  const s = sandbox();
  const h = await s.processes.spawn('head -c 50000000 /dev/zero', { maxRetainedBytes: 0 });
  const { reader } = h;
  await h.wait();
  assert.ok(reader.readableLength < 1 << 20);
  let n = 0;
  for await (const b of reader) n += (b as Buffer).length;
  assert.equal(n, 50_000_000);
});

test('the end of a writer after the end of its process is no error', async () => {
  const s = sandbox();
  const h = await s.processes.spawn('exit 0');
  await h.wait();
  await new Promise<void>((ok, no) => h.writer.on('error', no).end(ok));
  await assert.rejects(h.sendStdin('x'), /has already exited with code 0/);
});

test('files are written whole, with their modes, below the working directory or anywhere', async () => {
  const s = sandbox();
  const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i & 255));
  const outside = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'tend-mastra-')), 'x');
  await s.writeFiles([
    { path: 'a/b/run.sh', content: 'echo ran\n', mode: 0o755 },
    { path: "it's $HOME; `x`\n.bin", content: bytes },
    { path: '-n', content: '' },
    { path: outside, content: 'ž' },
  ]);
  assert.equal((await s.executeCommand('./a/b/run.sh')).stdout, 'ran\n');
  const file = path.join(s.workingDirectory!, "it's $HOME; `x`\n.bin");
  assert.deepEqual(fs.readFileSync(file), bytes);
  assert.equal(fs.statSync(file).mode & 0o777, 0o644);
  assert.equal(fs.readFileSync(path.join(s.workingDirectory!, '-n')).length, 0);
  assert.equal(fs.readFileSync(outside, 'utf8'), 'ž');
  assert.deepEqual(fs.readdirSync(s.workingDirectory!).sort(), ['-n', 'a', "it's $HOME; `x`\n.bin"]);
  await assert.rejects(s.writeFiles([{ path: 'a', content: '' }]), /is a directory/);
  await assert.rejects(s.writeFiles([{ path: 'a/b/run.sh/c', content: '' }]), /cannot be written/);
  for (const mode of [0, 0o1777, 1.5]) await assert.rejects(s.writeFiles([{ path: 'm', content: '', mode }]), { code: 'invalid' });
  await assert.rejects(s.writeFiles([{ path: 'd/', content: '' }]), { code: 'invalid' });
  await assert.rejects(s.writeFiles([{ path: 'x', content: 'x' }], { abortSignal: AbortSignal.abort() }), { code: 'ABORTED' });
  fs.rmSync(path.dirname(outside), { recursive: true });
});

test('commands run as another user, in a directory of that user', async () => {
  const s = sandbox({ user: 'nobody', workingDirectory: fs.mkdtempSync(path.join(os.tmpdir(), 'tend-mastra-')) });
  fs.chmodSync(s.workingDirectory!, 0o777);
  assert.equal((await s.executeCommand('id', ['-un'])).stdout, 'nobody\n');
  await s.writeFiles([{ path: 'mine', content: '' }]);
  assert.equal((await s.executeCommand('stat', ['-c', '%U', 'mine'])).stdout, 'nobody\n');
  await s.destroy();
  fs.rmSync(s.workingDirectory!, { recursive: true });
});

test("the client's environment does not go in", async () => {
  process.env.TEND_TEST_SECRET = 'x';
  const { stdout } = await sandbox({ env: { A: '1', B: undefined } }).executeCommand('env');
  delete process.env.TEND_TEST_SECRET;
  assert.match(stdout, /^A=1$/m);
  assert.match(stdout, /^PATH=/m);
  assert.match(stdout, /^HOME=/m);
  assert.doesNotMatch(stdout, /^(B|TEND_TEST_SECRET)=/m);
});

test('a port of the sandbox is a port of its machine', async () => {
  const s = sandbox({ url: daemon.url });
  assert.equal(await s.networking.getPortUrl(8080), null, 'not running yet');
  await s.processes.spawn(`exec ${process.execPath} -e 'require("http").createServer((_, r) => r.end("in")).listen(0, "127.0.0.1", function () { console.log(this.address().port); })'`);
  const h = (await s.processes.get((await s.processes.list())[0]!.pid))!;
  await until(() => h.stdout.includes('\n'), 'it listens');
  const url = await s.networking.getPortUrl(Number(h.stdout));
  assert.equal(await (await fetch(url!)).text(), 'in');
  await assert.rejects(s.networking.getPortUrl(0), { code: 'invalid' });
});

test('options of a sandbox of its own are refused without one, and wrong ones with it', async () => {
  assert.throws(() => sandbox({ isolation: 'half' as never }), { code: 'invalid' });
  for (const wrong of [{ share: [] }, { network: {} }, { limits: {} }, { timeout: 1 }, { sandboxId: 'x', isolation: 'none' as const }]) assert.throws(() => sandbox(wrong), { code: 'invalid' });
  assert.throws(() => sandbox({ isolation: 'full', workingDirectory: 'here' }), { code: 'invalid', field: 'workingDirectory' });
  for (const wrong of [{ limits: { ram: 1 } as never }, { network: { mode: 'open' as never } }, { share: [{ source: 'relative' }] }, { share: '/tmp' as never }, { limits: { memory: '1g' as never } }, { template: 'no-such' }, { sandboxId: 'no-such' }, { timeout: -1 }]) {
    const s = sandbox({ isolation: 'full', ...wrong });
    await assert.rejects(s.executeCommand('true'), (err: Error & { code?: string }) => ['invalid', 'not_found', 'unsupported'].includes(err.code!), JSON.stringify(wrong));
  }
  assert.throws(() => tendSandboxProvider.createSandbox({ isolatoin: 'full' } as never), { code: 'invalid' });
  await assert.rejects(sandbox().pause(), { code: 'unsupported' });
  await assert.rejects(sandbox().fork(), { code: 'unsupported' });
});

test('what is wrong with a spawn is said', async () => {
  const s = sandbox();
  await assert.rejects(s.processes.spawn('true', { cwd: '/no/such/dir' }), /\/no\/such\/dir/);
  await assert.rejects(s.processes.spawn('true', { cwd: 'no-such-dir' }), new RegExp(`${s.workingDirectory}/no-such-dir`));
  await assert.rejects(s.processes.spawn('true', { timeout: -1 }), RangeError);
  await assert.rejects(s.processes.spawn('true', { maxRetainedBytes: -1 }), RangeError);
  await assert.rejects(s.processes.spawn('a\0b'), { code: 'invalid' });
  assert.equal((await (await s.processes.spawn('')).wait()).exitCode, 0);
  assert.equal((await (await s.processes.spawn('true', { timeout: Infinity })).wait()).exitCode, 0);
});

test('the provider makes sandboxes from stored configurations', async () => {
  const s = await tendSandboxProvider.createSandbox({ url: daemon.socket, id: 'stored', env: { A: '1' } });
  assert.equal((await s.executeCommand('echo $A')).stdout, '1\n');
  await s.destroy!();
  assert.deepEqual(JSON.parse(JSON.stringify(tendSandboxProvider.configSchema)), tendSandboxProvider.configSchema);
  assert.equal(tendSandboxProvider.id, 'tend');
});

test('while the daemon is gone commands fail, and its successor serves the same sandbox', async () => {
  const own = await Daemon.start();
  const s = new TendSandbox({ url: own.socket, id: 'again' });
  const h = await s.processes.spawn('echo up; exec sleep 600');
  await until(() => h.stdout, 'output');
  await own.restart();
  assert.equal((await h.wait()).success, false, 'a shutdown ends processes');
  assert.equal((await s.executeCommand('echo back')).stdout, 'back\n');
  await s.destroy();
});
