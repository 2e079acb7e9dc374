// The examples, as they stand: their types, and what they do.
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { transformSync } from 'esbuild';
import { Client } from '@tend/client';
import { Daemon, until } from '../../daemon.js';
import { compile, examples, install } from '../../pack.js';

const daemon = await Daemon.start();
const client = await Client.connect({ url: daemon.socket });
after(() => client.close());
fs.mkdirSync('.test/run', { recursive: true });

/** Runs a program of this package, and returns what it prints. */
async function run(name: string, text: string, args: string[] = [], env: Record<string, string> = {}): Promise<string> {
  const file = path.resolve(`.test/run/${name}.mjs`);
  fs.writeFileSync(file, transformSync(text, { loader: 'ts', target: 'node20' }).code);
  const { stdout } = await promisify(execFile)(process.execPath, [file, ...args], { timeout: 120_000, env: { ...process.env, TEND_URL: daemon.socket, ...env } });
  return stdout;
}

const example = (name: string) => fs.readFileSync(`examples/${name}.ts`, 'utf8');

/** The scripted model server of test/fakellm. It refuses what the script does not expect. */
async function model(script: string): Promise<{ env: Record<string, string>; end: () => Promise<void> }> {
  const bin = path.join(daemon.dir, 'fakellm');
  execFileSync('go', ['-C', '../../test/fakellm', 'build', '-o', bin, '.']);
  const url = path.join(daemon.dir, `${path.basename(script)}.url`);
  const child = spawn(bin, ['-script', script, '-addr-file', url, '-key', 'sekrit'], { stdio: ['ignore', 'ignore', 'pipe'] });
  after(() => void child.kill('SIGKILL'));
  let failures = '';
  child.stderr.on('data', (d) => (failures += d));
  await until(() => fs.existsSync(url), 'the model serves');
  const env = { ANTHROPIC_BASE_URL: fs.readFileSync(url, 'utf8').trim(), ANTHROPIC_API_KEY: 'sekrit' };
  return {
    env,
    end: async () => {
      const state = (await (await fetch(`${env.ANTHROPIC_BASE_URL}/__state`)).json()) as { turns_left: number };
      assert.equal(state.turns_left, 0);
      const status = new Promise((ok) => child.once('exit', ok));
      child.kill('SIGTERM');
      assert.equal(await status, 0, failures);
    },
  };
}

test('an agent starts a server that outlives it', async () => {
  const llm = await model('examples/agent.script.json');
  assert.match(await run('agent', example('agent'), ['start the server'], llm.env), /The server listens on port 8080\.$/m);
  await llm.end();
  const [left] = await client.list({ live: true });
  assert.equal(left?.spec.shell, 'echo listening on 8080; exec sleep 600');
  await client.attach(left!).kill();
});

test('JSON-RPC', async () => {
  assert.equal(await run('jsonrpc', example('jsonrpc')), 'ŽLUŤ OVER THE WIRE\n');
});

test('a language server', async () => {
  assert.equal(await run('lsp', example('lsp')), "Type 'string' is not assignable to type 'number'.\nexit code 0\n");
});

test("the README's programs do what they say", async () => {
  const [usage, streaming, again, ports, isolated] = examples();
  assert.ok(usage && streaming && again && ports && isolated);
  const llm = await model('test/readme.script.json');
  assert.equal(await run('usage', usage, [], llm.env), '/etc has a file called hosts.\n');
  await llm.end();
  assert.equal(await run('streaming', streaming), 'step 1\nstep 2\n0\n');
  assert.match(await run('again', again), /^([0-9]+) up\n\1 true\n$/);
  assert.match(await run('ports', ports), /^http:\/\/localhost:8080$/m);
  assert.equal(await run('isolated', isolated), '1\nprepared\n');
});

test('the package as it is published: its files and types', () => {
  const dir = install('@tend/mastra', ['@types/node', 'undici-types', '@mastra/core', 'vscode-jsonrpc']);
  const root = path.join(dir, 'node_modules/@tend/mastra');
  assert.deepEqual(fs.readdirSync(root).sort(), ['CHANGELOG.md', 'LICENSE', 'README.md', 'dist', 'package.json']);
  const pkg = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'));
  assert.equal(pkg.dependencies, undefined);
  assert.deepEqual(Object.keys(pkg.peerDependencies), ['@mastra/core']);
  const uses = `
import { tendSandboxProvider, TendSandbox, type TendSandboxOptions } from '@tend/mastra';
import { Workspace } from '@mastra/core/workspace';
const options: TendSandboxOptions = { id: 'x', isolation: 'none', env: { A: undefined }, onStart: ({ sandbox, outcome }) => void [sandbox.id, outcome] };
const workspace = new Workspace({ sandbox: new TendSandbox(options) });
async function f(): Promise<string | undefined> { return (await new TendSandbox().processes.get('1'))?.id; }
void [workspace, f, tendSandboxProvider.id];
`;
  const programs = Object.fromEntries([...examples(), example('agent'), example('jsonrpc'), example('lsp')].map((text, i) => [`e${i}.ts`, text]));
  compile(dir, { 'a.ts': uses, 'b.cts': uses, ...programs }, ['--types', 'node', '--skipLibCheck', '--lib', 'es2023,dom']);
});
