// The package as it is published: its files, types, and the README's examples.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { Daemon } from '../../daemon.js';
import { compile, examples, install } from '../../pack.js';

const dir = install('@tend/client', ['@types/node', 'undici-types']);

test('it has what it needs, and nothing else', () => {
  const root = path.join(dir, 'node_modules/@tend/client');
  assert.deepEqual(fs.readdirSync(root).sort(), ['CHANGELOG.md', 'LICENSE', 'README.md', 'dist', 'package.json']);
  const pkg = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'));
  assert.deepEqual([pkg.dependencies, pkg.peerDependencies, pkg.optionalDependencies], [undefined, undefined, undefined]);
});

// One run of the compiler, which takes longer than all the rest, is for what wants the same of it.
test("the types are whole, for import and require, and the README's examples compile", () => {
  const uses = `
const c: Client = await Client.connect({ url: 'unix:///x', token: 't', retry: { attempts: 1 } });
const p = await c.start({ shell: 'x', env: { A: undefined } });
for await (const e of p.read({ streams: ['stdout'] })) if (e.kind === 'exited') { const n: number = shellStatus(e.exit); void n; }
const { sandbox } = await c.openSandbox({ name: 'x', isolation: 'full', shares: [{ source: '/a', readOnly: true }], network: { mode: 'own', public: true } });
const q: Process = await sandbox.processes.start({ shell: 'x' });
const s: SandboxInfo = await sandbox.update({ timeout: 1, metadata: { a: 'b' } });
void [q, s];
try { await p.write('x'); } catch (e) { if (hasCode(e, 'exited')) console.log(e.code); }
`;
  const head = "{ Client, hasCode, shellStatus, type Process, type SandboxInfo } from '@tend/client';\n";
  const programs = Object.fromEntries(examples().map((text, i) => [`example${i}.ts`, text]));
  compile(dir, { 'a.ts': `import ${head}${uses}`, 'b.cts': `import ${head}async function f() {${uses}}\nvoid f;`, ...programs });
});

test('a bundler for browsers finds what has nothing of Node.js', async () => {
  for (const name of ['@tend/client', '@tend/client/browser']) {
    const { outputFiles, metafile } = await build({ stdin: { contents: `export * from '${name}'`, resolveDir: dir }, bundle: true, write: false, metafile: true, platform: 'browser', format: 'esm', logLevel: 'silent' });
    const inputs = Object.keys(metafile.inputs).filter((f) => f !== '<stdin>');
    assert.deepEqual(inputs.map((f) => f.replace(/.*node_modules\//, '')), ['@tend/client/dist/browser/index.js']);
    assert.deepEqual(inputs.flatMap((f) => metafile.inputs[f]!.imports), []);
    assert.doesNotMatch(outputFiles[0]!.text, /\bnode:|\brequire\(|\bBuffer\./);
  }
});

test('the types for browsers are whole, and know nothing of Node.js', () => {
  const uses = `
const c: Client = await Client.connect({ token: 't' });
const p = await c.start({ shell: 'x', stdin: 'pipe' });
const out: ReadableStream<Uint8Array> = p.output('stdout');
const into: WritableStream<Uint8Array | string> = p.input();
for await (const e of p.read()) if (e.kind === 'output') { const d: Uint8Array = e.data; void d; }
void [out, into];
// @ts-expect-error: a browser has no such option
void Client.connect({ tls: { ca: 'x' } });
`;
  const programs = { 'c.ts': `import { Client } from '@tend/client/browser';\n${uses}`, 'd.ts': `import { Client } from '@tend/client';\n${uses}` };
  compile(dir, programs, ['--typeRoots', '/nonexistent', '--lib', 'es2023,dom,dom.iterable,dom.asynciterable', '--customConditions', 'browser']);
});

test("the README's examples do what they say", async () => {
  const daemon = await Daemon.start();
  const said = ['3 hello\n\nready\n{ killed: true, survivors: [] }\n', '0\n', 'stderr error: no such file\n1\n middle 1000\n\n', 'true my-box\nkept\nkept\n'];
  const programs = examples();
  assert.equal(programs.length, said.length);
  for (const [i, text] of programs.entries()) {
    const file = path.join(dir, `example${i}.mjs`);
    fs.writeFileSync(file, text); // they are JavaScript, too
    const { stdout } = await promisify(execFile)(process.execPath, [file], { timeout: 120_000, env: { ...process.env, TEND_URL: daemon.socket } });
    assert.equal(stdout, said[i]);
  }
});
