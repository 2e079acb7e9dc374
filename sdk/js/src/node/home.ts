// Where the daemon of the current user listens, by the rules of the tend command
// line (internal/lib/home). The only place that reads the environment.

import fs from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { TendError } from '../errors.js';

/** URLs to try, the likeliest first, and the token of TEND_TOKEN. */
export async function defaults(env: NodeJS.ProcessEnv = process.env): Promise<{ urls: string[]; token?: string }> {
  const token = env.TEND_TOKEN || undefined;
  if (env.TEND_URL) return { urls: [env.TEND_URL], token };
  const root = process.geteuid?.() === 0;
  const named = env.TEND_STATE_DIR;
  const dir = stateDir(env, root);
  let socket = path.join(dir, 'tend.sock');
  if (!named) {
    const runtime = env.XDG_RUNTIME_DIR;
    if (root) socket = '/run/tend/tend.sock';
    else if (runtime && path.isAbsolute(runtime) && (await isDir(runtime))) socket = path.join(runtime, 'tend', 'tend.sock');
  }
  const urls = [`unix://${socket}`];
  try {
    // What the daemon says of itself.
    const said = (await fs.readFile(path.join(dir, 'url'), 'utf8')).trim();
    if (said && said !== urls[0]) urls.unshift(said);
  } catch {
    // No daemon has run there, or it is not ours to read.
  }
  return { urls, token };
}

function stateDir(env: NodeJS.ProcessEnv, root: boolean): string {
  if (env.TEND_STATE_DIR) return path.resolve(env.TEND_STATE_DIR);
  if (root) return '/var/lib/tend';
  if (env.XDG_STATE_HOME && path.isAbsolute(env.XDG_STATE_HOME)) return path.join(env.XDG_STATE_HOME, 'tend');
  const home = env.HOME || os.homedir();
  if (!path.isAbsolute(home)) throw new TendError('no_daemon', 'no state directory: HOME is not set; give a url');
  return path.join(home, '.local', 'state', 'tend');
}

async function isDir(name: string): Promise<boolean> {
  return fs.stat(name).then((s) => s.isDirectory(), () => false);
}
