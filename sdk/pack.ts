// A package as npm would publish it, in a directory of its own, for tests that
// use it as its users do.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after } from 'node:test';

const modules = path.resolve('../node_modules');

/** Packs the package of the current directory, and installs it with some packages of this workspace. */
export function install(name: string, others: string[]): string {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'tend-pack-'));
  after(() => fs.rmSync(dir, { recursive: true, force: true }));
  const said = execFileSync('npm', ['pack', '--silent', '--pack-destination', dir], { encoding: 'utf8' });
  const into = path.join(dir, 'node_modules', name);
  fs.mkdirSync(into, { recursive: true });
  execFileSync('tar', ['-xzf', path.join(dir, said.trim().split('\n').at(-1)!), '-C', into, '--strip-components=1']);
  for (const other of others) {
    fs.mkdirSync(path.dirname(path.join(dir, 'node_modules', other)), { recursive: true });
    fs.symlinkSync(path.join(modules, other), path.join(dir, 'node_modules', other));
  }
  return dir;
}

/** Compiles programs of the directory, of which .cts is CommonJS, without looking away from any declaration but those of TypeScript's own library. */
export function compile(dir: string, files: Record<string, string>, flags = ['--types', 'node']): void {
  for (const [name, text] of Object.entries(files)) fs.writeFileSync(path.join(dir, name), text);
  fs.writeFileSync(path.join(dir, 'package.json'), '{"type":"module"}');
  try {
    const args = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'nodenext', '--moduleResolution', 'nodenext', '--skipDefaultLibCheck', ...flags, ...Object.keys(files)];
    execFileSync(process.execPath, [path.join(modules, 'typescript/bin/tsc'), ...args], { cwd: dir, encoding: 'utf8' });
  } catch (err) {
    throw new Error((err as { stdout: string }).stdout || String(err));
  }
}

/** The fenced pieces of TypeScript of README.md. */
export function examples(): string[] {
  return [...fs.readFileSync('README.md', 'utf8').matchAll(/^```ts\n(.*?)^```$/gms)].map((m) => m[1]!);
}
