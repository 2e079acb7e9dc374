// Directories as one list of rows, of which only those that are seen are asked for: a
// directory may have a million entries.

import { type FileEntry } from '../../js/src/gen/tend/v1/sandbox_pb.js';
import { repeat, words, type Place } from './api.js';

/** Entries that are asked for at once. */
const page = 200;

/** A directory that is open. */
class Dir {
  total: number | undefined;
  error: string | undefined;
  readonly pages = new Map<number, FileEntry[]>();
  /** Its directories that are open, by their place. */
  readonly open = new Map<number, Dir>();

  constructor(readonly path: string) {}

  get length(): number {
    if (!this.total) return 1; // a note
    let n = this.total;
    for (const d of this.open.values()) n += d.length;
    return n;
  }
}

export interface Row {
  depth: number;
  entry?: FileEntry;
  open?: boolean;
  /** In the place of entries. */
  note?: string;
  place?: [number, number];
}

export class Tree {
  #root: Dir;
  readonly #opened = new Set<string>();
  readonly #asked = new Set<string>();
  #turn = new AbortController();

  constructor(
    readonly place: Place,
    readonly path: string,
    readonly match: string,
    readonly changed: () => void,
  ) {
    this.#root = new Dir(path);
    void this.#load(this.#root, 0);
  }

  close(): void {
    this.#turn.abort();
  }

  get length(): number {
    return this.#root.length;
  }

  get total(): number | undefined {
    return this.#root.total;
  }

  row(k: number): Row {
    return this.#row(this.#root, k, 0);
  }

  #row(dir: Dir, k: number, depth: number): Row {
    if (dir.error !== undefined) return { depth, note: dir.error };
    if (dir.total === undefined) return { depth, note: 'loading\u2026' };
    if (dir.total === 0) return { depth, note: dir === this.#root && this.match ? 'nothing has this in its name' : 'empty' };
    let shift = 0;
    for (const n of [...dir.open.keys()].sort((a, b) => a - b)) {
      const below = dir.open.get(n)!;
      if (k <= n + shift) break;
      if (k <= n + shift + below.length) return this.#row(below, k - n - shift - 1, depth + 1);
      shift += below.length;
    }
    const n = k - shift;
    const entry = dir.pages.get(Math.floor(n / page))?.[n % page];
    if (!entry) {
      if (dir.pages.has(Math.floor(n / page))) return { depth, note: 'gone' };
      void this.#load(dir, Math.floor(n / page));
      return { depth };
    }
    return { depth, entry, open: dir.open.has(n), place: [n + 1, dir.total] };
  }

  async #load(dir: Dir, n: number): Promise<void> {
    const key = `${n} ${dir.path}`;
    if (this.#asked.has(key)) return;
    this.#asked.add(key);
    const { signal } = this.#turn;
    try {
      const got = await repeat(() => this.place.files.listFiles({ path: dir.path, limit: page, from: n * page, match: dir.path === this.path ? this.match : '' }, { signal }), signal);
      if (signal.aborted) return;
      dir.total = got.total;
      dir.error = undefined;
      dir.pages.set(n, got.entries);
      got.entries.forEach((e, k) => this.#opened.has(e.path) && this.#unfold(dir, n * page + k, e.path));
    } catch (err) {
      if (signal.aborted) return;
      dir.error = words(err);
    }
    this.#asked.delete(key);
    this.changed();
  }

  #unfold(dir: Dir, n: number, path: string): void {
    if (dir.open.has(n)) return;
    const below = new Dir(path);
    dir.open.set(n, below);
    void this.#load(below, 0);
  }

  /** Opens or closes the directory of a row. */
  toggle(k: number, open?: boolean): void {
    const found = this.#find(this.#root, k);
    if (!found) return;
    const { dir, n, entry } = found;
    const is = dir.open.has(n);
    if (is === (open ?? !is)) return;
    if (is) {
      dir.open.delete(n);
      this.#opened.delete(entry.path);
    } else {
      this.#opened.add(entry.path);
      this.#unfold(dir, n, entry.path);
    }
    this.changed();
  }

  #find(dir: Dir, k: number): { dir: Dir; n: number; entry: FileEntry } | undefined {
    let shift = 0;
    for (const n of [...dir.open.keys()].sort((a, b) => a - b)) {
      const below = dir.open.get(n)!;
      if (k <= n + shift) break;
      if (k <= n + shift + below.length) return this.#find(below, k - n - shift - 1);
      shift += below.length;
    }
    const n = k - shift;
    const entry = dir.pages.get(Math.floor(n / page))?.[n % page];
    return entry && { dir, n, entry };
  }

  /** Reads all of it anew; what is open stays open, and what there was is shown until then. */
  refresh(): void {
    this.#turn.abort();
    this.#turn = new AbortController();
    this.#asked.clear();
    const { signal } = this.#turn;
    const root = new Dir(this.path);
    void this.#load(root, 0).then(() => {
      if (signal.aborted) return;
      this.#root = root;
      this.changed();
    });
  }
}
