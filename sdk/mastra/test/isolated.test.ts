// Sandboxes of their own: isolation: 'full'.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { Client } from '@tend/client';
import { TendSandbox, type TendSandboxOptions } from '@tend/mastra';
import { Daemon, until } from '../../daemon.js';

const made: TendSandbox[] = [];
after(async () => {
  for (const s of made) await s.destroy().catch(() => {});
  client.close();
});
const daemon = await Daemon.start();
const client = await Client.connect({ url: daemon.socket });

function sandbox(options: TendSandboxOptions = {}): TendSandbox {
  const s = new TendSandbox({ url: daemon.socket, isolation: 'full', ...options });
  made.push(s);
  return s;
}

const idOf = async (s: TendSandbox): Promise<string> => String((await s.getInfo()).metadata!.sandboxId);

test('programs see processes and files of their own, and the machine sees nothing of them', async () => {
  const s = sandbox();
  assert.deepEqual(await s.start(), { outcome: 'created' });
  const mark = path.join(os.tmpdir(), `tend-mastra-${process.pid}`);
  fs.writeFileSync(mark, 'of the machine');
  const h = await s.processes.spawn('exec sleep 600');
  const { stdout } = await s.executeCommand(`ls ${mark} 2>&1; echo inside > /usr/inside; ls /proc | grep -c "^[0-9]"; pwd; hostname`);
  assert.match(stdout, /No such file/);
  assert.equal(fs.existsSync('/usr/inside'), false);
  assert.ok(Number(stdout.split('\n')[1]) < 12, stdout);
  assert.equal(stdout.split('\n')[2], s.workingDirectory);
  await until(async () => (await client.list({ labels: s.place.labels, live: true })).length === 1, 'the daemon lists it alone');
  assert.deepEqual((await s.processes.list()).map((p) => p.pid), [h.pid]);
  await s.destroy();
  assert.deepEqual(await client.sandboxes(), []);
  assert.equal((await h.wait()).success, false);
  fs.rmSync(mark);
});

test('the same id finds the same sandbox, and its id of the daemon too', async () => {
  const a = sandbox({ id: 'found/by id' });
  const h = await a.processes.spawn('echo up; exec sleep 600');
  const b = sandbox({ id: 'found/by id' });
  assert.deepEqual(await b.start(), { outcome: 'connected' });
  assert.equal((await b.processes.get(h.pid))!.id, h.id);
  const c = sandbox({ sandboxId: await idOf(a), isolation: undefined, id: 'found/by id' });
  assert.equal((await c.processes.get(h.pid))!.id, h.id);
  await c.destroy();
  assert.equal((await h.wait()).success, false);
  await assert.rejects(sandbox({ sandboxId: await idOf(a) }).start(), { code: 'not_found' });
});

test('two programs that start one id at once get one sandbox', async () => {
  const all = Array.from({ length: 8 }, () => sandbox({ id: 'at-once' }));
  const outcomes = (await Promise.all(all.map((s) => s.start()))).map((r) => (r as { outcome: string }).outcome);
  assert.deepEqual(outcomes.sort(), ['connected', 'connected', 'connected', 'connected', 'connected', 'connected', 'connected', 'created']);
  assert.equal(new Set(await Promise.all(all.map(idOf))).size, 1);
  await all[0]!.destroy();
});

test('a sandbox that is not of this id is not touched', async () => {
  const other = await client.createSandbox({ name: 'mastra-taken', isolation: 'full' });
  await assert.rejects(sandbox({ id: 'taken' }).start(), { code: 'exists' });
  await other.destroy();
});

test('stop ends processes and keeps files; the next use starts it again', async () => {
  const s = sandbox({ id: 'stopped' });
  const h = await s.processes.spawn('echo kept > /var/tmp/f; setsid sleep 600 & exec sleep 600');
  await until(async () => (await s.executeCommand('cat /var/tmp/f')).success, 'the file');
  await Promise.all([s.stop(), s.stop()]);
  assert.equal(s.status, 'stopped');
  const r = await h.wait();
  assert.deepEqual([r.success, r.killed], [false, true]);
  assert.equal((await (await client.sandbox('mastra-stopped')).refresh()).state, 'stopped');
  assert.equal((await s.executeCommand('cat /var/tmp/f')).stdout, 'kept\n');
  assert.deepEqual((await s.processes.list()).filter((p) => p.running), []);
});

test('what was stopped, paused or destroyed from elsewhere is started or made again', async () => {
  const s = sandbox({ id: 'elsewhere' });
  await s.executeCommand('echo kept > /var/tmp/f');
  for (const how of ['stop', 'pause'] as const) {
    await (await client.sandbox('mastra-elsewhere'))[how]();
    assert.equal((await s.executeCommand('cat /var/tmp/f')).stdout, 'kept\n', how);
  }
  const outcomes: unknown[] = [];
  s.setOnStart(() => ({ outcome }) => void outcomes.push(outcome));
  await (await client.sandbox('mastra-elsewhere')).destroy();
  const all = await Promise.all([s.executeCommand('ls /var/tmp/f'), s.processes.spawn('echo new').then((h) => h.wait()), s.processes.list()]);
  assert.deepEqual([all[0].success, all[1].stdout], [false, 'new\n']);
  assert.deepEqual(outcomes, ['created']);
  await (await client.sandbox('mastra-elsewhere')).destroy();
  await s.writeFiles([{ path: 'f', content: 'x' }]);
  assert.equal((await s.executeCommand('cat f')).stdout, 'x');
});

test('pause lets processes stand still, and the next use lets them go on', async () => {
  const s = sandbox({ id: 'paused' });
  const h = await s.processes.spawn('i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done');
  await until(() => h.stdout.length > 10, 'output');
  await s.pause();
  assert.equal(s.status, 'stopped');
  assert.equal((await (await client.sandbox('mastra-paused')).refresh()).state, 'paused');
  const before = h.stdout;
  assert.equal((await s.executeCommand('echo on')).stdout, 'on\n');
  await until(() => h.stdout.length > before.length + 10, 'more output');
  assert.equal(h.exitCode, undefined);
  assert.deepEqual(h.stdout.trim().split('\n').map(Number), h.stdout.trim().split('\n').map((_, i) => i + 1), 'without a gap');
  assert.equal(await h.kill(), true);
});

test('shares, limits, network and user are what was asked for', async () => {
  const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'tend-mastra-')));
  fs.chmodSync(dir, 0o777);
  fs.writeFileSync(path.join(dir, 'f'), 'shared\n');
  const s = sandbox({
    share: [{ source: dir, target: '/in' }, { source: dir, target: '/ro', readOnly: true }],
    limits: { memory: 64 << 20, tasks: 50, cpus: 1 },
    network: { mode: 'none' },
    user: 'nobody',
    workingDirectory: '/tmp/nobody',
  });
  const { stdout } = await s.executeCommand('cat /in/f; touch /ro/x 2>&1; id -un; pwd');
  assert.match(stdout, /^shared\n.*Read-only.*\nnobody\n\/tmp\/nobody\n$/);
  const { size, network } = await (await client.sandbox(await idOf(s))).refresh();
  assert.deepEqual([size.memory, size.tasks, size.cpus, network.mode], [64 << 20, 50, 1, 'none']);
  assert.equal((await s.executeCommand(`${process.execPath} -e 'Buffer.alloc(200 << 20, 1)'`)).success, false);
  await s.destroy();
  fs.rmSync(dir, { recursive: true });
});

test('a checkpoint is what the next one begins with', async () => {
  const s = sandbox({ id: 'check', checkpointName: 'warm' });
  assert.equal(s.supportsCheckpoints, true);
  for (const text of ['one', 'two']) {
    await s.executeCommand(`echo ${text} > /var/tmp/f`);
    await s.snapshot();
  }
  const next = s.clone({ id: 'check-2', env: { A: '1' } });
  made.push(next);
  assert.equal((await next.executeCommand('cat /var/tmp/f; echo $A')).stdout, 'two\n1\n');
  const seeded = s.clone({ checkpointName: 'new', seedCheckpointName: 'warm' });
  made.push(seeded);
  assert.notEqual(seeded.id, s.id);
  assert.equal((await seeded.executeCommand('cat /var/tmp/f')).stdout, 'two\n');
  await s.executeCommand('echo three > /var/tmp/f');
  await s.snapshot(); // though two sandboxes hold the one before
  assert.equal((await next.executeCommand('cat /var/tmp/f')).stdout, 'two\n');
  const attached = s.clone({ sandboxId: await idOf(s) });
  assert.equal((await attached.executeCommand('cat /var/tmp/f')).stdout, 'three\n');
  for (const one of [attached, next, seeded]) await one.destroy();
  await sandbox({ id: 'check', checkpointName: 'warm' }).snapshot();
  assert.equal((await client.snapshots()).length, 1, 'those before are removed when nobody holds them');
  await sandbox({ isolation: 'none' }).snapshot();
});

test('a fork has the files, a life of its own, and its id', async () => {
  const s = sandbox({ id: 'forked', timeout: 3_600_000 });
  await s.processes.spawn('exec sleep 600');
  await s.executeCommand('echo mine > /var/tmp/f');
  const f = await s.fork({ id: 'fork-1' });
  made.push(f);
  assert.equal((await f.executeCommand('cat /var/tmp/f; echo yours > /var/tmp/f')).stdout, 'mine\n');
  assert.equal((await s.executeCommand('cat /var/tmp/f')).stdout, 'mine\n');
  assert.deepEqual((await f.processes.list()).filter((p) => p.running), []);
  assert.equal((await sandbox({ id: 'fork-1' }).executeCommand('cat /var/tmp/f')).stdout, 'yours\n');
  const { deadline } = await (await client.sandbox('mastra-fork-1')).refresh();
  assert.ok(deadline!.getTime() > Date.now() + 3_000_000, 'the timeout of the options, not that of the copying');
  await assert.rejects(s.fork({ id: 'fork-1' }), { code: 'exists' });
  assert.equal((await client.sandboxes()).filter((b) => b.name.startsWith('mastra-fork-')).length, 1);
});

test('a timeout pauses it, and the next use goes on', async () => {
  const s = sandbox({ id: 'timed', timeout: 1500 });
  const h = await s.processes.spawn('echo up; exec sleep 600');
  await until(async () => (await (await client.sandbox('mastra-timed')).refresh()).state === 'paused', 'it is paused');
  assert.equal((await s.executeCommand('echo on')).stdout, 'on\n');
  assert.equal(h.exitCode, undefined);
  const d = sandbox({ id: 'timed-out', timeout: 1000, onTimeout: 'destroy' });
  await d.start().catch(() => {}); // its second may be over before it has begun
  await until(async () => !(await client.sandboxes()).some((b) => b.name === 'mastra-timed-out'), 'it is destroyed');
  // Its second may be over again before the command is.
  await until(async () => (await d.executeCommand('echo again').catch(() => undefined))?.stdout === 'again\n', 'it is made again');
});

test('a port inside has a URL if the network is public', async () => {
  const s = sandbox({ url: daemon.url, network: { public: true } });
  const code = 'require("http").createServer((q, r) => r.end("in " + q.headers.host)).listen(3000, "127.0.0.1", () => console.log("up"))';
  const h = await s.processes.spawn(`exec ${process.execPath} -e '${code}'`);
  await until(() => h.stdout, 'it listens');
  const url = new URL((await s.networking.getPortUrl(3000))!);
  // Node.js does not know names below localhost.
  const text = await new Promise<string>((ok, no) => {
    http.get({ host: '127.0.0.1', port: url.port, headers: { host: url.host } }, (res) => {
      let all = '';
      res.on('data', (d) => (all += d)).on('end', () => ok(all));
    }).on('error', no);
  });
  assert.equal(text, `in ${url.host}`);
  assert.match(url.host, /^3000-i[0-9a-z]{19}\.localhost:\d+$/);
  assert.equal(new URL((await sandbox({ sandboxId: await idOf(s), network: { public: true }, domain: 'x.test' }).networking.getPortUrl(1))  ?? 'http://none').host, 'none', 'not running yet');
  const other = sandbox({ network: { public: true }, domain: 'x.test' });
  await other.start();
  assert.equal(await other.networking.getPortUrl(80), `http://80-${await idOf(other)}.x.test:${url.port}`);
  const closed = sandbox();
  await closed.start();
  assert.equal(await closed.networking.getPortUrl(80), null);
});

test('while roles are killed it is made, paused, stopped and destroyed as ever', async () => {
  const killing = daemon.killing(150);
  const s = sandbox({ id: 'killed' });
  let rounds = 0;
  try {
    for (; rounds < 8 || killing.killed() < 8; rounds++) {
      assert.equal((await s.executeCommand(`echo ${rounds} >> /var/tmp/f; wc -l < /var/tmp/f`)).stdout.trim(), String(rounds + 1));
      const other = sandbox({ id: `killed-${rounds}` });
      assert.equal((await other.executeCommand('echo made')).stdout, 'made\n');
      await s.pause();
      await other.destroy();
      if (rounds % 4 === 3) await s.stop();
    }
  } finally {
    await killing.stop();
  }
  assert.equal((await client.sandboxes()).filter((b) => b.name.startsWith('mastra-killed')).length, 1);
});
