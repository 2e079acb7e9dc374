// Builds the package of the current directory into dist/: one ESM and one CJS
// bundle with everything inlined but the peer dependencies, and the types; where
// there is a tsconfig.browser.json, also an ESM bundle for browsers, in dist/browser/.
import { build } from 'esbuild';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { licenses } from './licenses.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const pkg = JSON.parse(fs.readFileSync('package.json', 'utf8'));
fs.rmSync('dist', { recursive: true, force: true });

const common = { entryPoints: ['src/index.ts'], bundle: true, external: Object.keys(pkg.peerDependencies ?? {}), legalComments: 'none', logLevel: 'warning' };
let inside = '';
for (const format of ['esm', 'cjs']) inside = licenses((await build({ ...common, metafile: true, outfile: `dist/index.${format === 'esm' ? 'js' : 'cjs'}`, platform: 'node', target: 'node20', format })).metafile);
fs.writeFileSync('LICENSE', fs.readFileSync(path.join(here, '../LICENSE'), 'utf8') + (inside && `\n\nThis package contains others.\n${inside}`));
types('tsconfig.json', 'dist');

if (fs.existsSync('tsconfig.browser.json')) {
  // A module of Node.js in it fails the build: nothing is external.
  await build({ ...common, outfile: 'dist/browser/index.js', platform: 'browser', target: ['es2022', 'chrome123', 'firefox128', 'safari17.5'], format: 'esm', tsconfig: 'tsconfig.browser.json' });
  types('tsconfig.browser.json', 'dist/browser');
}

/** The types that index.d.ts leads to, for import and for require: those of messages stay inside. */
function types(config, dir) {
  execFileSync(process.execPath, [path.join(here, 'node_modules/typescript/bin/tsc'), '-p', config], { stdio: 'inherit' });
  const platform = `./${path.basename(dir) === 'browser' ? 'browser' : 'node'}/platform.js`;
  const kept = new Set();
  const visit = (name) => {
    if (kept.has(name)) return;
    kept.add(name);
    const text = fs.readFileSync(path.join(dir, name), 'utf8').replaceAll(`'#platform'`, `'${platform}'`);
    fs.writeFileSync(path.join(dir, name), text);
    for (const [, , to] of text.matchAll(/(from |import\()['"](\.[^'"]*)\.js['"]/g)) visit(`${path.join(path.dirname(name), to)}.d.ts`);
  };
  visit('index.d.ts');
  for (const name of fs.readdirSync(dir, { recursive: true }).map(String)) {
    if (!name.endsWith('.d.ts')) continue;
    if (!kept.has(name)) fs.rmSync(path.join(dir, name));
    else if (dir === 'dist') fs.writeFileSync(path.join(dir, name.replace(/\.d\.ts$/, '.d.cts')), fs.readFileSync(path.join(dir, name), 'utf8').replace(/((?:from |import\()['"]\.[^'"]*)\.js(['"])/g, '$1.cjs$2'));
  }
  fs.rmSync(path.join(dir, 'gen'), { recursive: true, force: true });
}
