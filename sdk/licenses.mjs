// The licenses of the packages that a bundle of esbuild has inside, by its metafile.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));

export function licenses(metafile) {
  const packages = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const m = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
    if (m) packages.add(m[1]);
  }
  let text = '';
  for (const name of [...packages].sort()) {
    const dir = path.join(here, 'node_modules', name);
    const { version, license } = JSON.parse(fs.readFileSync(path.join(dir, 'package.json'), 'utf8'));
    const file = fs.readdirSync(dir).find((f) => /^licen[cs]e/i.test(f));
    text += `\n---- ${name} ${version} (${license})\n\n${file ? fs.readFileSync(path.join(dir, file), 'utf8').trim() : `Its license is ${license}.`}\n`;
  }
  return text;
}
