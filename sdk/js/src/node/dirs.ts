// Directories of this machine as tars, and back.

import fs from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { packTar, unpackTar } from 'modern-tar/fs';
import { randomHex } from '../random.js';

/** The owner of the entry of an archive that lists what is left out. */
const leftOut = 'tend-left-out.txt';

/** What is in a directory. */
export async function packDir(local: string): Promise<AsyncIterable<Uint8Array>> {
  await fs.readdir(local); // what is no directory is no archive
  return packTar(local, { filter: (_, stat) => stat.isFile() || stat.isDirectory() || stat.isSymbolicLink(), map: (h) => ({ ...h, uid: 0, gid: 0 }) });
}

/** Unpacks what is below the top of an archive. Returns what was left out. */
export async function unpackDir(archive: AsyncIterable<Uint8Array>, local: string): Promise<string[]> {
  const left: string[] = [];
  const list = `.tend-${randomHex(12)}`;
  let lost: unknown;
  const source = async function* () {
    try {
      yield* archive;
    } catch (err) {
      lost = err;
      throw err;
    }
  };
  await fs.mkdir(local, { recursive: true });
  const unpack = unpackTar(local, {
    // What is downloaded is nobody else's to change, and a directory takes what is in it.
    map: (h) => ({ ...h, name: h.uname === leftOut ? list : below(h.name), mode: ((h.mode ?? 0o644) & ~0o022) | (h.type === 'directory' ? 0o700 : 0) }),
    filter: (h) => {
      if (h.type !== 'symlink' || inside(path.posix.dirname(below(h.name)), h.linkname ?? '')) return true;
      left.push(`${below(h.name)}: a link to ${h.linkname}, out of the directory`);
      return false;
    },
  });
  try {
    await pipeline(Readable.from(source()), unpack);
  } catch (err) {
    throw lost ?? err;
  }
  const file = path.join(local, list);
  const said = await fs.readFile(file, 'utf8').catch(() => '');
  await fs.rm(file, { force: true });
  return [...left, ...said.split('\n').filter(Boolean)];
}

/** A name below the top of an archive. */
const below = (name: string): string => name.slice(name.indexOf('/') + 1);

/** Whether a link in a directory of the archive leads to what is in the archive. */
function inside(dir: string, target: string): boolean {
  return !path.posix.isAbsolute(target) && !path.posix.join(dir, target).startsWith('..');
}
