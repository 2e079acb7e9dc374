// Builds the package of the current directory into dist/: one ESM and one CJS
// bundle with everything inlined but the peer dependencies, and the types.
import { build } from 'esbuild';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const pkg = JSON.parse(fs.readFileSync('package.json', 'utf8'));
fs.rmSync('dist', { recursive: true, force: true });
fs.copyFileSync(path.join(here, '../LICENSE'), 'LICENSE');

for (const format of ['esm', 'cjs']) {
  await build({
    entryPoints: ['src/index.ts'],
    outfile: `dist/index.${format === 'esm' ? 'js' : 'cjs'}`,
    bundle: true,
    platform: 'node',
    target: 'node20',
    format,
    external: Object.keys(pkg.peerDependencies ?? {}),
    legalComments: 'none',
    logLevel: 'warning',
  });
}

execFileSync(process.execPath, [path.join(here, 'node_modules/typescript/bin/tsc'), '-p', '.'], { stdio: 'inherit' });

// The types that index.d.ts leads to, for import and for require: those of
// messages stay inside.
const kept = new Set();
const visit = (name) => {
  if (kept.has(name)) return;
  kept.add(name);
  for (const [, , to] of text(name).matchAll(/(from |import\()['"](\.[^'"]*)\.js['"]/g)) visit(`${path.join(path.dirname(name), to)}.d.ts`);
};
const text = (name) => fs.readFileSync(path.join('dist', name), 'utf8');
visit('index.d.ts');
for (const name of fs.readdirSync('dist', { recursive: true }).map(String)) {
  if (!name.endsWith('.d.ts')) continue;
  if (kept.has(name)) fs.writeFileSync(path.join('dist', name.replace(/\.d\.ts$/, '.d.cts')), text(name).replace(/((?:from |import\()['"]\.[^'"]*)\.js(['"])/g, '$1.cjs$2'));
  else fs.rmSync(path.join('dist', name));
}
fs.rmSync('dist/gen', { recursive: true, force: true });
