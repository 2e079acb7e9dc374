// @tend/client as browsers get it, in a real one, on a real tend whose server is killed meanwhile.
import assert from 'node:assert/strict';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { build } from 'esbuild';
import type { Page } from 'playwright-core';
import type * as client from '../../js/dist/browser/index.js';
import { browser, daemon, token, url } from './stage.js';

declare const tend: typeof client; // in the page

// As a bundler for browsers finds it.
const bundle = await build({ stdin: { contents: "export * from '@tend/client'", resolveDir: process.cwd() }, bundle: true, write: false, platform: 'browser', format: 'iife', globalName: 'tend', logLevel: 'warning' });

/** A page of this address, with the client in it. */
async function pageOf(address: string): Promise<Page> {
  const page = await browser.newPage();
  page.setDefaultTimeout(0);
  await page.goto(address);
  await page.evaluate(`${bundle.outputFiles[0]!.text}; globalThis.tend = tend`);
  return page;
}

const own = await pageOf(`${url}/-/readyz`);

test('in a browser: commands, streams, input, waits, views, files and errors', async () => {
  const said = await own.evaluate(async (token) => {
    const utf8 = new TextDecoder();
    const code = (p: Promise<unknown>) => p.then(() => 'none', (err: client.TendError) => `${err.code}: ${err.message}`);
    const c = await tend.Client.connect({ token });
    const { stdout, stderr, exitCode } = await c.run({ shell: 'cat; echo "$A" >&2; exit 3', env: { A: 'x y' } }, { input: 'in' });
    const p = await c.start({ shell: 'seq 1 1000; read x; echo "got $x"', stdin: 'pipe' });
    await p.wait({ match: /^1000$/ });
    const writer = p.input().getWriter();
    await writer.write('this\n');
    await writer.close();
    const parts: Uint8Array[] = [];
    for (const reader = p.output('stdout').getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) break;
      parts.push(value);
    }
    const [line] = await p.grep(/got/);
    const { sandbox } = await c.openSandbox({ name: 'browser', isolation: 'none' });
    await sandbox.files.write('a', new Uint8Array([1, 2, 255]));
    const file = [...(await sandbox.files.read('a'))];
    await sandbox.destroy();
    const stop = new AbortController();
    const waiting = code(c.run({ argv: ['sleep', '600'] }, { signal: stop.signal }).then((r) => Promise.reject(Object.assign(new Error(r.exit.cause), { code: 'killed' }))));
    while ((await c.list({ live: true })).length === 0);
    stop.abort();
    const result = {
      run: [utf8.decode(stdout), utf8.decode(stderr), exitCode],
      output: utf8.decode(await new Blob(parts as Uint8Array<ArrayBuffer>[]).arrayBuffer()),
      line: line?.kind === 'match' && utf8.decode(line.text),
      file,
      aborted: await waiting,
      errors: [
        await code(c.start({ argv: ['/no/such'] })),
        await code(c.get({ id: 'nosuch' })),
        await code(tend.Client.connect({ token: 'wrong' })),
        await code(tend.Client.connect({ url: 'unix:///run/tend.sock' })),
      ],
      relative: (await tend.Client.connect({ url: '/', token })).server.version === c.server.version,
    };
    c.close();
    return result;
  }, token);
  assert.deepEqual(said.run, ['in', 'x y\n', 3]);
  assert.equal(said.output, `${Array.from({ length: 1000 }, (_, i) => `${i + 1}\n`).join('')}got this\n`);
  assert.deepEqual([said.line, said.file, said.aborted, said.relative], ['got this', [1, 2, 255], 'killed: killed', true]);
  assert.deepEqual(said.errors.map((e) => e.split(':')[0]), ['start', 'not_found', 'permission', 'unsupported']);
  assert.match(said.errors[3]!, /unix socket/);
});

test('in a browser: while the server is killed, not one byte is lost or doubled, of output or of input', async () => {
  const killing = daemon.killing(300, ['server']);
  try {
    for (let round = 0; round < 2 || killing.killed() < 4; round++) {
      const wrong = await own.evaluate(async (token) => {
        const c = await tend.Client.connect({ token, retry: { attempts: 100 } });
        const joined = async (p: client.Process, facts: string[]) => {
          const parts: Uint8Array<ArrayBuffer>[] = [];
          for await (const e of p.read({ drain: -1 })) {
            if (e.kind === 'output') parts.push(e.data as Uint8Array<ArrayBuffer>);
            else facts.push(e.kind === 'exited' ? `exited ${e.exit.code}` : e.kind);
          }
          return new Uint8Array(await new Blob(parts).arrayBuffer());
        };
        const same = (a: Uint8Array, b: Uint8Array) => (a.length === b.length && a.every((byte, i) => byte === b[i]) ? [] : [`${a.length} bytes of ${b.length}`]);
        const [count, cat] = await Promise.all([
          c.start({ shell: 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo "line $i of a process"; [ $((i % 300)) = 0 ] && sleep 0.1; done; exit 7' }),
          c.start({ argv: ['cat'], stdin: 'pipe' }),
        ]);
        const bytes = crypto.getRandomValues(new Uint8Array(60_000));
        const lines = new TextEncoder().encode(Array.from({ length: 3000 }, (_, i) => `line ${i + 1} of a process\n`).join(''));
        const [of, facts]: [string[], string[]] = [[], []];
        const outputs = Promise.all([joined(count, facts), joined(cat, of)]);
        const writes: Promise<void>[] = [];
        for (let at = 0; at < bytes.length; at += 1009) writes.push(cat.write(bytes.subarray(at, at + 1009)));
        await Promise.all(writes);
        await cat.closeStdin();
        const [out, echo] = await outputs;
        const wrong = [...same(out, lines), ...same(echo, bytes)];
        for (const [got, code] of [[facts, 7], [of, 0]] as const) {
          const want = `eof,eof,exited ${code},started`; // the end of the tree may come after the end of the output
          if (got.filter((kind) => kind !== 'treeGone').sort().join() !== want) wrong.push(got.join());
        }
        await Promise.all([count.remove(), cat.remove()]);
        c.close();
        return wrong;
      }, token);
      assert.deepEqual(wrong, []);
    }
  } finally {
    await killing.stop();
  }
});

test('in a browser: a page of another origin is told so', async () => {
  const elsewhere = http.createServer((_, res) => void res.setHeader('Content-Type', 'text/html').end('<!doctype html>'));
  await new Promise<void>((ok) => elsewhere.listen(0, '127.0.0.1', ok));
  after(() => void (elsewhere.closeAllConnections(), elsewhere.close()));
  const page = await pageOf(`http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}/`);
  const said = await page.evaluate(([url, token]) => tend.Client.connect({ url: url!, token: token! }).then(() => 'none', (err: client.TendError) => `${err.code}: ${err.message}`), [url, token]);
  assert.match(said, /^permission: .*under one origin/);
});
