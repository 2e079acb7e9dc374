// Builds the page into internal/protocol/page/dist, or the directory that is given: bundles
// whose names have a hash of what is in them, index.html that names the first of
// them, and the licenses of what is inside, each packed by gzip. The same sources give the
// same bytes once they are unpacked; packed ones differ between versions of Node.js.
import { build } from 'esbuild';
import fs from 'node:fs';
import path from 'node:path';
import zlib from 'node:zlib';
import { fileURLToPath } from 'node:url';
import { licenses } from '../licenses.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] ?? path.join(here, '../../internal/protocol/page/dist'));
fs.rmSync(out, { recursive: true, force: true });
fs.mkdirSync(out, { recursive: true });

// xterm.js makes most of its elements by the document that it is told, and some by
// the global one: those it gets from strict.ts, too.
const strict = {
  name: 'strict',
  setup(b) {
    b.onLoad({ filter: /[\\/]@xterm[\\/]xterm[\\/]lib[\\/]xterm\.mjs$/ }, (args) => {
      const text = fs.readFileSync(args.path, 'utf8');
      if (!text.includes('window.document')) throw new Error('xterm.js is another than src/strict.ts is for');
      return { contents: `import { strictDocument } from ${JSON.stringify(path.join(here, 'src/strict.ts'))};\nconst document = strictDocument();\n${text.replaceAll('window.document', 'document')}`, resolveDir: path.dirname(args.path) };
    });
  },
};

const result = await build({
  absWorkingDir: here,
  entryPoints: ['src/start.ts', 'src/style.css'],
  outdir: out,
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  bundle: true,
  splitting: true,
  minify: true,
  format: 'esm',
  platform: 'browser',
  target: ['es2022', 'chrome123', 'firefox128', 'safari17.5'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  charset: 'utf8',
  metafile: true,
  plugins: [strict],
  logLevel: 'warning',
});

const outputs = Object.entries(result.metafile.outputs);
const named = (entry) => path.basename(outputs.find(([, o]) => o.entryPoint === entry)[0]);
const html = fs.readFileSync(path.join(here, 'src/index.html'), 'utf8');
const icon = `icon-${named('src/style.css').replace(/^style-|\.css$/g, '')}.svg`;
fs.copyFileSync(path.join(here, 'src/icon.svg'), path.join(out, icon));
// A browser fetches main.js and what it imports at once, before start.js asks for it.
const main = outputs.find(([, o]) => o.entryPoint === 'src/main.tsx')[0];
const needed = new Set([main]);
const imports = (file) => {
  for (const i of result.metafile.outputs[file].imports) if (i.kind === 'import-statement' && !needed.has(i.path)) needed.add(i.path), imports(i.path);
};
imports(main);
const preloads = [...needed].map((file) => `<link rel="modulepreload" href="/ui/${path.basename(file)}">`).sort().join('\n');
fs.writeFileSync(path.join(out, 'index.html'), html.replace('style.css', named('src/style.css')).replace('icon.svg', icon).replace('<!-- what main.js needs -->', preloads).replace('start.js', named('src/start.ts')));

fs.writeFileSync(path.join(out, 'licenses.txt'), `The page of tend contains these packages.\n${licenses(result.metafile)}`);

for (const name of fs.readdirSync(out)) {
  const file = path.join(out, name);
  fs.writeFileSync(`${file}.gz`, zlib.gzipSync(fs.readFileSync(file), { level: 9 }));
  fs.rmSync(file);
}
