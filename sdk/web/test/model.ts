// A scripted model server, and what a service that it works on needs.
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { after } from 'node:test';
import { until } from '../../daemon.js';
import { dir } from './stage.js';

export const key = 'sk-page-0123456789abcdef';

/** Starts a scripted model server, and returns its address. */
export async function model(turns: unknown[]): Promise<string> {
  const program = path.join(dir, 'fakellm');
  if (!fs.existsSync(program)) execFileSync('go', ['-C', '../../test/fakellm', 'build', '-o', program, '.']);
  const script = path.join(dir, 'script.json');
  const address = path.join(dir, 'model.url');
  fs.rmSync(address, { force: true });
  fs.writeFileSync(script, JSON.stringify({ mode: 'match', turns }));
  const child = spawn(program, ['-script', script, '-key', key, '-addr-file', address], { stdio: 'ignore' });
  after(() => void child.kill('SIGKILL'));
  await until(() => fs.existsSync(address), 'the model server listens');
  return fs.readFileSync(address, 'utf8').trim();
}

/** A port that nobody has now, below those that the kernel gives to whoever wants any: it may be used only later. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 10000 + Math.floor(Math.random() * 22768);
    const s = net.createServer();
    const free = await new Promise<boolean>((done) => s.once('error', () => done(false)).listen(port, '127.0.0.1', () => done(true)));
    if (!free) continue;
    await new Promise((ok) => s.close(ok));
    return port;
  }
}
