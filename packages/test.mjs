// Runs the tests of the package of the current directory: test/*.test.ts. They
// are bundled with what they test of src/; the package itself they get as its
// users do, by its name, from dist/.
import { build } from 'esbuild';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';

const only = process.argv.slice(2);
const tests = fs.readdirSync('test').filter((f) => f.endsWith('.test.ts') && (only.length === 0 || only.some((o) => f.includes(o))));
fs.rmSync('.test', { recursive: true, force: true });
await build({
  entryPoints: tests.map((f) => `test/${f}`),
  outdir: '.test',
  outExtension: { '.js': '.mjs' },
  bundle: true,
  platform: 'node',
  target: 'node20',
  format: 'esm',
  sourcemap: 'inline',
  packages: 'external',
  logLevel: 'warning',
});
const run = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-concurrency=1', '--test-timeout=600000', ...tests.map((f) => `.test/${f.replace(/\.ts$/, '.mjs')}`)], { stdio: 'inherit' });
process.exit(run.status ?? 1);
