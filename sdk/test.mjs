// Runs the tests of the package of the current directory: test/*.test.ts. They
// are bundled with what they test of src/; the package itself they get as its
// users do, by its name, from dist/. Where there is a tsconfig.browser.json, the unit
// tests run once more with what src/ is for browsers.
import { build } from 'esbuild';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';

const only = process.argv.slice(2);
const tests = fs.readdirSync('test').filter((f) => f.endsWith('.test.ts') && (only.length === 0 || only.some((o) => f.includes(o))));
const forBrowsers = fs.existsSync('tsconfig.browser.json') ? tests.filter((f) => f === 'unit.test.ts') : [];
fs.rmSync('.test', { recursive: true, force: true });
const bundle = (files, ending, options = {}) =>
  build({
    entryPoints: files.map((f) => `test/${f}`),
    outdir: '.test',
    outExtension: { '.js': ending },
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'esm',
    sourcemap: 'inline',
    packages: 'external',
    logLevel: 'warning',
    ...options,
  });
await bundle(tests, '.mjs');
if (forBrowsers.length > 0) await bundle(forBrowsers, '.browser.mjs', { tsconfig: 'tsconfig.browser.json' });
const files = fs.readdirSync('.test').filter((f) => f.endsWith('.mjs'));
const run = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-concurrency=1', '--test-timeout=600000', ...files.map((f) => `.test/${f}`)], { stdio: 'inherit' });
process.exit(run.status ?? 1);
