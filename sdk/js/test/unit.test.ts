// The client against servers that misbehave. They run twice: as the client is in Node.js,
// and as it is in browsers, with the fetch of Node.js.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { create, fromBinary, toBinary, type MessageShape } from '@bufbuild/protobuf';
import { ExportImageResponseSchema } from '../src/gen/tend/v1/image_pb.js';
import { UsageRequestSchema, UsageResponseSchema } from '../src/gen/tend/v1/overview_pb.js';
import { ErrorDetailSchema, ErrorKind, GetResponseSchema, KillResponseSchema, RemoveResponseSchema, RunRequestSchema, StartReason, StartResponseSchema } from '../src/gen/tend/v1/process_pb.js';
import { Client, GapError, InvalidError, RedirectError, StartError, TendError, type ClientOptions, type Process, type ProcessEvent } from '../src/index.js';
import { parseTarget } from '../src/target.js';
import { defaults } from '../src/node/home.js';
import { Attempts } from '../src/retry.js';
import { answer, end, envelope, eof, event, exited, Fake, hello, output, readRequest, refuse, stdoutFrom, writeRequest, written, type Handler } from './fake.js';
import { until } from '../../daemon.js';

/** The client is that of browsers. */
const byFetch = import.meta.url.includes('.browser.');

const quick = { first: 1, max: 5, attempts: 5 };

async function open(handlers: Record<string, Handler>, options: ClientOptions = {}, hello?: Parameters<typeof Fake.start>[1]): Promise<{ client: Client; p: Process; fake: Fake }> {
  const fake = await Fake.start({ Get: (_, res) => answer(res, GetResponseSchema, { info: { id: 'p', pid: 7 } }), ...handlers }, hello);
  const client = await Client.connect({ url: fake.url, retry: quick, ...options });
  return { client, p: await client.get({ id: 'p' }), fake };
}

async function all(events: AsyncIterable<ProcessEvent>): Promise<{ bytes: Buffer; kinds: string[] }> {
  const parts: Buffer[] = [];
  const kinds: string[] = [];
  for await (const e of events) {
    if (e.kind === 'output') parts.push(e.data);
    if (kinds.at(-1) !== e.kind) kinds.push(e.kind);
  }
  return { bytes: Buffer.concat(parts), kinds };
}

const stream = (res: import('node:http').ServerResponse) => res.setHeader('Content-Type', 'application/connect+proto');
const text = Buffer.from(Array.from({ length: 1000 }, (_, i) => `line ${i}\n`).join(''));

test('what is misspelt is refused before anything is sent', async () => {
  const { client, p } = await open({});
  const invalid = (field: string) => (err: unknown) => err instanceof InvalidError && err.field === field;
  await assert.rejects(client.start({ argv: ['ls'], dir: '/', cwd: '/app' }), invalid('spec.cwd'));
  await assert.rejects(client.run({ shell: 'ls', working_dir: '/app' } as object), invalid('spec.working_dir'));
  await assert.rejects(p.wait({ signal: AbortSignal.timeout(1000) } as never), invalid('until'));
  client.close();
});

test('an output that breaks anywhere arrives whole, each byte once', async () => {
  for (let cut = 0; cut < 400; cut += 7) {
    let tries = 0;
    const { client, p } = await open({
      Read: (body, res) => {
        stream(res);
        const from = stdoutFrom(body);
        const parts = [hello([{ stream: 1, offset: BigInt(from) }])];
        for (let at = from; at < text.length; at += 37) parts.push(output(at, text.subarray(at, at + 37)));
        parts.push(exited(), eof(1, text.length), eof(2, 0), end());
        const whole = Buffer.concat(parts);
        if (tries++ < 3) res.write(whole.subarray(0, 60 + cut * tries), () => res.destroy());
        else res.end(whole);
      },
    });
    const { bytes, kinds } = await all(p.read());
    assert.equal(bytes.compare(text), 0, `cut at ${cut}`);
    assert.deepEqual(kinds, ['output', 'exited', 'eof']);
    client.close();
  }
});

test('an archive of an image that breaks anywhere arrives whole', async () => {
  for (let cut = 0; cut < 400; cut += 37) {
    let tries = 0;
    const { client } = await open(
      {
        ExportImage: (_, res) => {
          stream(res);
          const size = 50 + tries * 20; // pieces need not be the same
          const parts = [envelope(new Uint8Array())];
          for (let at = 0; at < text.length; at += size) parts.push(envelope(toBinary(ExportImageResponseSchema, create(ExportImageResponseSchema, { data: text.subarray(at, at + size) }))));
          const whole = Buffer.concat([...parts, end()]);
          if (tries++ < 3) res.write(whole.subarray(0, 60 + cut * tries), () => res.destroy());
          else res.end(whole);
        },
      },
      {},
      { sandboxes: true },
    );
    const parts: Uint8Array[] = [];
    for await (const part of client.images.export('python:3')) parts.push(part);
    assert.equal(Buffer.concat(parts).compare(text), 0, `cut at ${cut}`);
    client.close();
  }
});

test('what was used has the points that the server has kept', async () => {
  const time = (s: number) => ({ seconds: BigInt(s), nanos: 0 });
  const fake = await Fake.start({
    Usage: (body, res) => {
      const m = fromBinary(UsageRequestSchema, body);
      assert.deepEqual([m.names, m.since?.seconds, m.since?.nanos], [['web'], 5400n, 500_000_000]);
      answer(res, UsageResponseSchema, { usages: [{ kind: 'service', name: 'web', points: [{ time: time(60), cpu: 1500, memory: 7n }, { time: time(180), received: 0n, sent: 3n }] }] });
    },
  });
  const client = await Client.connect({ url: fake.url });
  assert.deepEqual(await client.usageHistory(5_400_500, ['web']), [
    { kind: 'service', id: '', name: 'web', cpus: 0, memoryTotal: 0, points: [{ time: new Date(60_000), cpu: 1.5, memory: 7, received: undefined, sent: undefined }, { time: new Date(180_000), cpu: 0, memory: 0, received: 0, sent: 3 }] },
  ]);
  client.close();
});

test('facts that a second stream repeats are delivered once', async () => {
  let tries = 0;
  const { p } = await open({
    Read: (_, res) => {
      stream(res);
      res.write(Buffer.concat([hello(), event({ case: 'started', value: { pid: 7 } }), exited(3), event({ case: 'treeGone', value: {} }), eof(2, 0)]));
      if (tries++ < 2) setTimeout(() => res.destroy(), 20);
      else res.end(Buffer.concat([eof(1, 0), end()]));
    },
  });
  const seen = (await all(p.read())).kinds;
  assert.deepEqual(seen, ['started', 'exited', 'treeGone', 'eof']);
});

test('when nothing can follow, the end of the stream is not asked for', async () => {
  let tries = 0;
  const { p } = await open({
    Read: (_, res) => {
      stream(res);
      tries++;
      res.write(Buffer.concat([hello(), exited(0), eof(1, 0), eof(2, 0)]));
      setTimeout(() => res.destroy(), 20);
    },
  });
  await all(p.read());
  assert.equal(tries, 1);
});

test('a server that goes away is called again at once, on a new connection', async () => {
  const ports: (number | undefined)[] = [];
  const { p } = await open({
    Read: (_, res, req) => {
      stream(res);
      ports.push(req.socket.remotePort);
      res.end(Buffer.concat(ports.length < 3 ? [hello(), output(ports.length - 1, Buffer.from('x')), event({ case: 'goingAway', value: {} }), end()] : [hello(), exited(), eof(1, 2), eof(2, 0), end()]));
    },
  });
  assert.equal((await all(p.read())).bytes.toString(), 'xx');
  if (!byFetch) assert.equal(new Set(ports).size, 3); // browsers keep their connections as they like
  else assert.equal(ports.length, 3);
});

test('a server that breaks each stream after its hello is given up', async () => {
  const { p, fake } = await open({
    Read: (_, res) => {
      stream(res);
      res.write(hello(), () => res.destroy());
    },
  });
  await assert.rejects(all(p.read()), { code: 'unavailable' });
  assert.equal(fake.calls.filter((c) => c === 'Read').length, 1 + quick.attempts);
});

test('a silent stream is left for another', async () => {
  let tries = 0;
  const { p } = await open(
    {
      Read: (_, res) => {
        stream(res);
        if (tries++ === 0) res.write(Buffer.concat([hello(), output(0, Buffer.from('a'))]));
        else res.end(Buffer.concat([hello(), output(1, Buffer.from('b')), exited(), eof(1, 2), eof(2, 0), end()]));
      },
    },
    { silence: 300 },
  );
  assert.equal((await all(p.read())).bytes.toString(), 'ab');
});

test('while the consumer is slow, silence means nothing, and the server is not drained', async () => {
  const sent: number[] = []; // by each call: a socket's buffers take some megabytes
  const total = 64 << 20;
  const part = Buffer.alloc(64 << 10, 'x');
  const { p } = await open(
    {
      Read: async (body, res) => {
        stream(res);
        res.write(hello());
        // On a machine that stands still a moment it is called again.
        const call = sent.push(0) - 1;
        for (let at = stdoutFrom(body); at < total && !res.destroyed; at += part.length) {
          sent[call]! += part.length;
          if (!res.write(output(at, part))) await new Promise((ok) => res.once('drain', ok).once('close', ok));
        }
        res.end(Buffer.concat([exited(), eof(1, total), eof(2, 0), end()]));
      },
    },
    { silence: 300 },
  );
  const events = p.read();
  let got = 0;
  const take = async () => {
    const { value } = await events.next();
    if (value?.kind === 'output') got += value.data.length;
    return value?.kind;
  };
  await take();
  await sleep(1000); // longer than silence
  assert.ok(Math.max(...sent) < 16 << 20, `${sent} bytes were taken from a consumer that read one event`);
  while ((await take()) !== 'exited');
  assert.equal(got, total);
});

test('output that is not the next is refused', async () => {
  for (const [what, wrong] of [
    ['before', output(0, Buffer.from('again'))],
    ['after', output(9, Buffer.from('skipped'))],
    ['of stdin', output(3, Buffer.from('x'), 0)],
    ['of another process', event({ case: 'output', value: { stream: 1, offset: 3n, data: Buffer.from('x') } }, 'q')],
    ['compressed', envelope(Buffer.from('x'), 1)],
    ['too long', Buffer.from([0, 0xff, 0xff, 0xff, 0xff])],
    ['no message', envelope(Buffer.from([0xff, 0xff]))],
    ['a negative gap', event({ case: 'gap', value: { stream: 1, from: 3n, to: 2n } })],
  ] as const) {
    const { p } = await open({
      Read: (_, res) => {
        stream(res);
        res.end(Buffer.concat([hello(), output(0, Buffer.from('abc')), wrong, end()]));
      },
    });
    await assert.rejects(all(p.read()), { code: 'protocol' }, what);
  }
});

test('"now" is settled by the first hello', async () => {
  const froms: bigint[] = [];
  const { p } = await open({
    Read: (body, res) => {
      stream(res);
      froms.push(readRequest(body).from.find((f) => f.stream === 1)!.offset);
      res.write(hello([{ stream: 1, offset: froms.length === 1 ? 100n : froms.at(-1)! }]));
      if (froms.length === 1) res.end(Buffer.concat([event({ case: 'goingAway', value: {} }), end()]));
      else res.end(Buffer.concat([output(100, Buffer.from('x')), exited(), eof(1, 101), eof(2, 0), end()]));
    },
  });
  const { bytes } = await all(p.read({ from: { stdout: -1 } }));
  assert.equal(bytes.toString(), 'x');
  assert.deepEqual(froms, [-1n, 100n]);
});

test('a gap is an event of a reader, and an error of an output stream', async () => {
  const Read: Handler = (_, res) => {
    stream(res);
    res.end(Buffer.concat([hello(), event({ case: 'gap', value: { stream: 1, from: 0n, to: 5n } }), output(5, Buffer.from('x')), exited(), eof(1, 6), eof(2, 0), end()]));
  };
  const { p } = await open({ Read });
  assert.deepEqual((await all(p.read())).kinds, ['gap', 'output', 'exited', 'eof']);
  await assert.rejects(async () => {
    for await (const _ of p.output('stdout'));
  }, GapError);
});

test('a reader ends while it waits: close, return, signal, and the end of the client', async () => {
  const { p, client } = await open({
    Read: (_, res) => {
      stream(res);
      res.write(hello());
    },
  });
  for (const how of ['close', 'return'] as const) {
    const r = p.read();
    const next = r.next();
    await sleep(20);
    void r[how]();
    assert.equal((await next).done, true, how);
    assert.equal((await r.next()).done, true);
  }
  const stop = new AbortController();
  const r = p.read({ signal: stop.signal });
  const next = r.next();
  await sleep(20);
  stop.abort(new Error('enough'));
  await assert.rejects(next, /enough/);
  const waiting = p.read().next();
  await sleep(20);
  client.close();
  await assert.rejects(waiting, { code: 'closed' });
});

test('a write whose answer is lost is repeated as the same one', async () => {
  const seen: { at: number; data: string; again: boolean; writer: string }[] = [];
  const { p } = await open({
    Write: (body, res) => {
      const w = writeRequest(body);
      seen.push({ at: Number(w.writerOffset), data: Buffer.from(w.data).toString(), again: w.again, writer: w.writer });
      if (seen.length === 1 || seen.length === 3) res.destroy();
      else written(res, Number(w.writerOffset) + w.data.length);
    },
  });
  await Promise.all([p.write('abc'), p.write('def')]);
  assert.deepEqual(
    seen.map(({ at, data, again }) => [at, data, again]),
    [
      [0, 'abc', false],
      [0, 'abc', true],
      [3, 'def', false],
      [3, 'def', true],
    ],
  );
  assert.equal(new Set(seen.map((s) => s.writer)).size, 1);
});

test('a writer that was forgotten begins anew, if nothing of its write can have been taken', async () => {
  const seen: [string, number][] = [];
  let forget = false;
  const { p } = await open({
    Write: (body, res) => {
      const w = writeRequest(body);
      seen.push([w.writer, Number(w.writerOffset)]);
      if (forget && w.writer === seen[0]![0]) {
        const value = Buffer.from(toBinary(ErrorDetailSchema, create(ErrorDetailSchema, { kind: ErrorKind.WRITER_FORGOTTEN }))).toString('base64');
        return refuse(res, 409, 'aborted', 'forgotten', [{ type: 'tend.v1.ErrorDetail', value }]);
      }
      written(res, Number(w.writerOffset) + w.data.length);
    },
  });
  await p.write('one');
  forget = true;
  await p.write('two');
  assert.notEqual(seen[2]![0], seen[0]![0]);
  assert.deepEqual(seen.map((s) => s[1]), [0, 3, 0]);
});

test('what waits behind a write that fails is not sent, and a later one begins anew', async () => {
  const seen: string[] = [];
  let broken = true;
  const { p } = await open({
    Write: (body, res) => {
      const w = writeRequest(body);
      seen.push(Buffer.from(w.data).toString());
      if (broken) res.destroy();
      else written(res, Number(w.writerOffset) + w.data.length);
    },
  });
  const results = await Promise.allSettled([p.write('a'), p.write('b'), p.closeStdin()]);
  assert.deepEqual(results.map((r) => r.status), ['rejected', 'rejected', 'rejected']);
  assert.deepEqual([...new Set(seen)], ['a']);
  broken = false;
  await p.write('c');
  assert.deepEqual([...new Set(seen)], ['a', 'c']);
});

test('a long write goes in parts that stay together', async () => {
  const parts: [number, number, boolean, boolean][] = [];
  const { p } = await open({
    Write: (body, res) => {
      const w = writeRequest(body);
      parts.push([Number(w.writerOffset), w.data.length, w.more, w.eof]);
      written(res, Number(w.writerOffset) + w.data.length);
    },
  });
  await p.write(Buffer.alloc(600 << 10));
  await p.closeStdin();
  const k = 256 << 10;
  assert.deepEqual(parts, [[0, k, true, false], [k, k, true, false], [2 * k, 88 << 10, false, false], [600 << 10, 0, false, true]]);
});

test('a write that a slow process holds up goes on as long as the server answers', async () => {
  let tries = 0;
  const { p, fake } = await open(
    {
      Write: (_, res) => {
        if (++tries >= 3) written(res, 1);
      },
    },
    { silence: 200 },
  );
  await p.write('x');
  // On a machine that stands still a moment the third answer is late, too.
  const asked = fake.calls.filter((c) => c === 'Hello').length;
  assert.ok(tries >= 3 && asked >= 3, `${tries} tries, and it was asked ${asked} times whether it answers`);
});

test('a start whose answer is lost is repeated with the same id', async () => {
  const ids: string[] = [];
  const { client } = await open({
    Start: (body, res) => {
      const id = /[0-9a-z]{26}/.exec(body.toString('latin1'))![0];
      ids.push(id);
      if (ids.length < 3) res.destroy();
      else answer(res, StartResponseSchema, { info: { id, pid: 5 } });
    },
  });
  const p = await client.start({ argv: ['true'] });
  assert.deepEqual(ids, [p.id, p.id, p.id]);
});

const started = () => event({ case: 'started', value: { pid: 7 } }, '');
const said = (at: number, text: string) => event({ case: 'output', value: { stream: 1, offset: BigInt(at), data: Buffer.from(text) } }, '');
const ended = (length: number) => Buffer.concat([event({ case: 'exited', value: { code: 3 } }, ''), event({ case: 'eof', value: { stream: 1, offset: BigInt(length) } }, ''), event({ case: 'eof', value: { stream: 2 } }, ''), end()]);

test('a command is one call, which is repeated until it has begun; then it is read from where it was', async () => {
  const runs: MessageShape<typeof RunRequestSchema>[] = [];
  const froms: number[] = [];
  const removed: string[] = [];
  const fake = await Fake.start(
    {
      Run: (body, res) => {
        stream(res);
        runs.push(fromBinary(RunRequestSchema, body.subarray(5)));
        if (runs.length === 1) res.destroy();
        else if (runs.length === 2) res.write(Buffer.concat([hello(), started(), said(0, 'ab')]), () => res.destroy());
        else res.end(Buffer.concat([hello(), started(), ended(0)]));
      },
      Read: (body, res) => {
        stream(res);
        froms.push(stdoutFrom(body));
        res.end(Buffer.concat([hello(), started(), said(2, 'c'), ended(3)]));
      },
      Remove: (body, res) => {
        removed.push(body.toString('latin1'));
        answer(res, RemoveResponseSchema, {});
      },
    },
    { listenersHeld: true, inputWriters: true, runs: true },
  );
  const client = await Client.connect({ url: fake.url, retry: quick });
  const { stdout, exitCode } = await client.run({ argv: ['x'] });
  assert.deepEqual([Buffer.from(stdout).toString(), exitCode, froms], ['abc', 3, [2]]);
  assert.equal(runs[0]!.spec!.id, runs[1]!.spec!.id);
  await client.run({ argv: ['y'] });
  await client.run({ argv: ['z'], id: 'mine' });
  // Each was removed once: with a run that followed at once, or by a call of its own.
  const ids = [runs[0]!, runs[2]!, runs[3]!].map((r) => r.spec!.id);
  await until(() => runs.flatMap((r) => r.forget).length + removed.length >= 3, 'all are removed');
  for (const id of ids) assert.equal(runs.filter((r) => r.forget.includes(id)).length + removed.filter((r) => r.includes(id)).length, 1, id);
  client.close();
});

test('a command is a start and a read where the server turns out to be of a former version', async () => {
  const { client, fake } = await open({
    Start: (body, res) => answer(res, StartResponseSchema, { info: { id: /[0-9a-z]{26}/.exec(body.toString('latin1'))![0], pid: 5 } }),
    Read: (_, res) => {
      stream(res);
      res.end(Buffer.concat([hello(), started(), said(0, 'x'), ended(1)]));
    },
  }, {}, { runs: true });
  for (let i = 0; i < 2; i++) assert.equal((await client.run({ argv: ['x'] })).exitCode, 3);
  assert.deepEqual(fake.calls.filter((c) => c !== 'Remove'), ['Hello', 'Get', 'Run', 'Start', 'Read', 'Start', 'Read']);
});

test('a kill whose answer is lost is repeated, and says whether it killed', async () => {
  let kills = 0;
  let cause = 5;
  const gone = Buffer.from(toBinary(ErrorDetailSchema, create(ErrorDetailSchema, { kind: ErrorKind.EXITED }))).toString('base64');
  const { p } = await open({
    Get: (_, res) => answer(res, GetResponseSchema, { info: { id: 'p', pid: 7, exit: { signal: 9, cause } } }),
    Kill: (_, res) => {
      if (kills++ === 0) res.destroy();
      else if (kills < 10) refuse(res, 400, 'failed_precondition', 'exited', [{ type: 'tend.v1.ErrorDetail', value: gone }]);
      else answer(res, KillResponseSchema, { verified: true });
    },
  });
  assert.equal((await p.kill()).killed, true);
  assert.equal((await p.kill()).killed, false);
  kills = 0;
  cause = 0;
  assert.equal((await p.kill()).killed, false);
});

test('a signal is sent once', async () => {
  const { p, fake } = await open({ Signal: (_, res) => void res.destroy() });
  await assert.rejects(p.signal(15), { code: 'unavailable' });
  assert.equal(fake.calls.filter((c) => c === 'Signal').length, 1);
});

test('errors of the server are typed', async () => {
  const detail = (d: Parameters<typeof create<typeof ErrorDetailSchema>>[1]) => ({ type: 'tend.v1.ErrorDetail', value: Buffer.from(toBinary(ErrorDetailSchema, create(ErrorDetailSchema, d))).toString('base64').replace(/=+$/, '') });
  let next: () => [number, string, string, unknown[]] = () => [404, 'not_found', 'x', []];
  const { client } = await open({ Start: (_, res) => refuse(res, ...next()) });
  const start = () => client.start({ argv: ['x'] });

  next = () => [404, 'not_found', 'no such program', [{ type: 'other', value: '!!' }, detail({ kind: ErrorKind.START, startReason: StartReason.BAD_DIR, what: '/x', systemError: 'no such file', errno: 2 })]];
  await assert.rejects(start(), (e) => e instanceof StartError && e.reason === 'bad_dir' && e.what === '/x' && e.errno === 2 && e.code === 'start');
  next = () => [400, 'invalid_argument', 'x', [detail({ kind: ErrorKind.INVALID, field: 'argv', reason: 'is \u001b[31mred' })]];
  await assert.rejects(start(), (e) => e instanceof InvalidError && e.field === 'argv' && e.message === 'argv is \ufffd[31mred');
  next = () => [401, 'unauthenticated', 'no token', []];
  await assert.rejects(start(), { code: 'permission' });
  next = () => [409, 'already_exists', 'taken', [detail({ kind: ErrorKind.EXISTS })]];
  await assert.rejects(start(), { code: 'exists', message: 'taken' });
  next = () => [500, 'internal', 'oh', []];
  await assert.rejects(start(), { code: 'internal', message: 'oh' });
  next = () => [503, 'unavailable', 'later', []];
  await assert.rejects(start(), { code: 'unavailable' });
});

test('what is no tend server is said to be none', async () => {
  const cases: [string, Handler, string][] = [
    ['a page', (_, res) => void res.setHeader('Content-Type', 'text/html').end('<html>'), 'protocol'],
    ['a missing page', (_, res) => void res.writeHead(404).end(), 'protocol'],
    ['a teapot', (_, res) => void res.writeHead(418).end('{}'), 'protocol'],
    ['no HTTP', (_, res) => void res.socket!.end('SSH-2.0-OpenSSH\r\n'), 'protocol'],
    ['a proxy without its server', (_, res) => void res.writeHead(502).end(), 'unavailable'],
    ['a door', (_, res) => void res.writeHead(403).end(), 'permission'],
    ['garbage', (_, res) => void res.setHeader('Content-Type', 'application/proto').end(Buffer.from([0xff])), 'protocol'],
  ];
  for (const [what, Hello, code] of cases) {
    const fake = await Fake.start({ Hello });
    await assert.rejects(Client.connect({ url: fake.url, retry: quick }), { code }, what);
  }
});

test('a redirect is not followed, and the token goes nowhere else', async () => {
  const elsewhere = await Fake.start({});
  const fake = await Fake.start({ Hello: (_, res) => void res.writeHead(307, { Location: elsewhere.url }).end() });
  await assert.rejects(Client.connect({ url: fake.url, token: 's3cret' }), (e) => e instanceof RedirectError && e.location === elsewhere.url && !e.message.includes('s3cret'));
  assert.deepEqual(elsewhere.calls, []);
});

test('the token goes with each request, and into no error', async () => {
  const tokens: (string | undefined)[] = [];
  const { client, p } = await open(
    {
      Get: (_, res, req) => {
        tokens.push(req.headers.authorization);
        answer(res, GetResponseSchema, { info: { id: 'p' } });
      },
      Read: (_, res, req) => {
        tokens.push(req.headers.authorization);
        refuse(res, 401, 'unauthenticated', 'no');
      },
    },
    { token: 's3cret' },
  );
  await assert.rejects(all(p.read()), (e: Error) => !String(e.stack).includes('s3cret'));
  assert.deepEqual(tokens, ['Bearer s3cret', 'Bearer s3cret']);
  await assert.rejects(Client.connect({ url: client.url, token: 'a\nb' }), { code: 'invalid' });
});

if (!byFetch) test('a token of the environment is not given to a server that the caller names', async () => {
  const tokens: (string | undefined)[] = [];
  const fake = await Fake.start({
    Hello: (_, res, req) => {
      tokens.push(req.headers.authorization);
      res.writeHead(403).end();
    },
  });
  Object.assign(process.env, { TEND_TOKEN: 's3cret', TEND_URL: fake.url });
  try {
    await assert.rejects(Client.connect({ url: fake.url }), { code: 'permission' });
    await assert.rejects(Client.connect(), { code: 'permission' });
  } finally {
    delete process.env.TEND_TOKEN;
    delete process.env.TEND_URL;
  }
  assert.deepEqual(tokens, [undefined, 'Bearer s3cret']);
});

test('URLs: nothing in them is ignored, and no password is repeated', () => {
  for (const bad of ['', 'nonsense', 'ftp://x', 'unix:', 'unix://', 'http://', 'http://h/?a=1', 'http://h/#f', 'http://h?', 'http://me:s3cret@h']) {
    assert.throws(() => parseTarget(bad), (e: Error) => e instanceof InvalidError && e.field === 'url' && !e.message.includes('s3cret'), bad);
  }
  assert.equal(parseTarget('unix:///run/t.sock').socketPath, '/run/t.sock');
  assert.equal(parseTarget('unix:/run/t.sock').socketPath, '/run/t.sock');
  assert.equal(parseTarget('http://h:1/base').base.pathname, '/base/');
});

test('the daemon is found as the command line finds it', async () => {
  assert.deepEqual(await defaults({ TEND_URL: 'http://x', TEND_TOKEN: 't' }), { urls: ['http://x'], token: 't' });
  assert.deepEqual((await defaults({ TEND_STATE_DIR: '/tmp/none' })).urls, ['unix:///tmp/none/tend.sock']);
});

test('the waits between attempts grow to a bound, and nothing spins', () => {
  const a = new Attempts({}, () => 0);
  assert.deepEqual(Array.from({ length: 11 }, () => a.next(false)), [500, 1000, 2000, 4000, 8000, 8000, 8000, 8000, 8000, 8000, undefined]);
  const b = new Attempts({}, () => 1);
  assert.deepEqual([b.next(true), b.next(true)], [0, 750]);
  b.progress();
  assert.equal(b.next(true), 0);
  assert.equal(new Attempts({ attempts: 0 }).next(true), undefined);
});

test('what is wrong with a request is said without the server', async () => {
  const { client, p, fake } = await open({});
  const before = fake.calls.length;
  for (const spec of [{ argv: ['a\0b'] }, { shell: '\ud800' }, { argv: ['x'], env: { A: '\udfff' } }, { argv: ['x'], labels: { a: '\ud800' } }, { argv: ['x'], timeout: Infinity }, { argv: ['x'], limits: { memoryMax: 1.5 } }]) {
    await assert.rejects(client.start(spec), InvalidError);
  }
  await assert.rejects(client.get({ pid: -1 }), InvalidError);
  await assert.rejects(client.get({} as never), InvalidError);
  assert.throws(() => p.read({ from: { stdout: 0.5 } }), InvalidError);
  assert.equal(fake.calls.length, before);
});

test('an abort ends a call that waits', async () => {
  const { client } = await open({ List: () => {} });
  await assert.rejects(client.list({}, AbortSignal.timeout(50)), { name: 'TimeoutError' });
  await until(() => true, 'the end');
  assert.ok(new TendError('internal', 'x') instanceof Error);
});

test('a server of another version: what it says besides is passed over, and what it lacks is said', async () => {
  const later = Buffer.from([0xba, 0x3e, 3, 0x6e, 0x65, 0x77]); // the field 999
  const { p, client } = await open({
    Get: (_, res) => {
      res.setHeader('Content-Type', 'application/proto');
      res.end(Buffer.concat([later, toBinary(GetResponseSchema, create(GetResponseSchema, { info: { id: 'p', pid: 7 } })), later]));
    },
    Pin: (_, res) => void res.writeHead(404, { 'Content-Type': 'text/plain' }).end('404 page not found'),
    Resize: (_, res) => refuse(res, 501, 'unimplemented', 'no'),
  });
  assert.equal((await p.refresh()).pid, 7);
  for (const call of [p.pin(), p.resize(1, 1)]) await assert.rejects(call, (err: Error & { code?: string }) => err.code === 'unsupported' && /tend upgrade replaces it/.test(err.message));
  await assert.rejects(client.sandboxes(), { code: 'unsupported' });
  await assert.rejects(p.grep('x', { invert: true }), { code: 'unsupported' });
  await assert.rejects(client.services.list(), { code: 'unsupported' });
});

test('what is no text is shown as text, and nothing of it is left out', async () => {
  const { p } = await open({ Get: (_, res) => answer(res, GetResponseSchema, { info: { id: 'p', spec: { rawArgv: [Buffer.from('\ufeffa'), Buffer.from([0xff])] } } }) });
  assert.deepEqual((await p.refresh()).spec.argv, ['\ufeffa', '\ufffd']);
});

test('a stream that has ended leaves its connection to the next call', async () => {
  const ports = new Set<number | undefined>();
  const { p } = await open({
    Read: (_, res, req) => {
      stream(res);
      ports.add(req.socket.remotePort);
      res.end(Buffer.concat([hello(), exited(), eof(1, 0), eof(2, 0), end()]));
    },
    Get: (_, res, req) => {
      ports.add(req.socket.remotePort);
      answer(res, GetResponseSchema, { info: { id: 'p', pid: 7 } });
    },
  });
  for (let i = 0; i < 5; i++) {
    await all(p.read());
    await p.refresh();
  }
  // The end of a body may come after the next call, which has another one then.
  assert.ok(ports.size < 5, `${ports.size} connections were made`);
});
