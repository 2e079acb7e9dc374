// Uploads into a directory: by a button, or dragged there, directories too. Each file
// is there as a whole or not at all.

import { hasCode } from '../../js/src/errors.js';
import { transient, words } from './api.js';
import { write, type At, type Condition } from './content.js';
import { size, visible } from './format.js';

/** Files that are sent at a time: a browser has few connections. */
const atOnce = 2;
/** Rows that are shown of many. */
const shown = 50;

export interface Upload {
  at: At;
  file: File;
  sent: number;
  state: 'waiting' | 'sending' | 'done' | 'there' | 'failed' | 'stopped';
  error?: string;
}

export class Uploads {
  all: Upload[] = [];
  #running = 0;
  readonly #scopes = new Map<Upload, AbortController>();

  constructor(
    readonly changed: () => void,
    /** A file has come into this directory. */
    readonly done: (dir: string) => void,
  ) {}

  add(box: string, dir: string, files: { file: File; name: string }[]): void {
    this.all = this.all.filter((u) => u.state !== 'done' && u.state !== 'stopped');
    for (const { file, name } of files) this.all.push({ at: { box, path: `${dir === '/' ? '' : dir}/${name}` }, file, sent: 0, state: 'waiting' });
    this.#next();
  }

  stop(u: Upload): void {
    if (u.state === 'sending') this.#scopes.get(u)?.abort();
    else this.all = this.all.filter((other) => other !== u);
    this.changed();
  }

  clear(): void {
    for (const s of this.#scopes.values()) s.abort();
    this.all = [];
    this.changed();
  }

  again(u: Upload, over: boolean): void {
    void this.#send(u, over ? 'any' : 'new');
  }

  #next(): void {
    while (this.#running < atOnce) {
      const u = this.all.find((other) => other.state === 'waiting');
      if (!u) break;
      void this.#send(u, 'new');
    }
    this.changed();
  }

  async #send(u: Upload, when: Condition): Promise<void> {
    this.#running++;
    const scope = new AbortController();
    this.#scopes.set(u, scope);
    u.state = 'sending';
    delete u.error;
    try {
      for (let tries = 1; ; tries++) {
        u.sent = 0;
        this.changed();
        try {
          await write(u.at, u.file, when, scope.signal, (sent) => {
            u.sent = sent;
            this.changed();
          });
          break;
        } catch (err) {
          if (scope.signal.aborted || !transient(err) || tries > 20) throw err;
          await new Promise((next) => setTimeout(next, Math.min(100 * tries, 2000)));
        }
      }
      u.state = 'done';
      this.done(u.at.path.slice(0, u.at.path.lastIndexOf('/')) || '/');
    } catch (err) {
      u.state = scope.signal.aborted ? 'stopped' : hasCode(err, 'exists') ? 'there' : 'failed';
      if (u.state === 'failed') u.error = words(err);
    }
    this.#scopes.delete(u);
    this.#running--;
    this.#next();
  }
}

export function UploadList({ uploads }: { uploads: Uploads }) {
  const { all } = uploads;
  if (all.length === 0) return null;
  const open = all.filter((u) => u.state === 'sending' || u.state === 'waiting').length;
  const first = [...all.filter((u) => u.state !== 'done'), ...all.filter((u) => u.state === 'done')].slice(0, shown);
  return (
    <section class="uploads" aria-label="Uploads">
      <header>
        <b role="status">{open ? `Uploading, ${open} to go` : 'Uploads'}</b>
        <span class="grow" />
        <button class="quiet" onClick={() => uploads.clear()}>
          {open ? 'Stop all' : 'Close'}
        </button>
      </header>
      <ul>
        {first.map((u) => (
          <li key={u.at.path}>
            <span class="name">
              <bdi>{visible(u.at.path.split('/').pop()!)}</bdi>
            </span>
            {u.state === 'sending' && (
              <>
                <progress max={Math.max(1, u.file.size)} value={u.sent} aria-label={`${u.sent} of ${u.file.size} bytes`} />
                <span class="faint num">{size(u.sent)}</span>
              </>
            )}
            {u.state === 'waiting' && <span class="faint">waiting</span>}
            {u.state === 'done' && <span class="state ok">done</span>}
            {u.state === 'stopped' && <span class="faint">stopped; nothing was written</span>}
            {u.state === 'there' && (
              <>
                <span class="state warn">there is one already</span>
                <button onClick={() => uploads.again(u, true)}>Replace it</button>
              </>
            )}
            {u.state === 'failed' && (
              <>
                <span class="error">{visible(u.error ?? '')}</span>
                <button onClick={() => uploads.again(u, false)}>Try again</button>
              </>
            )}
            {u.state !== 'done' && (
              <button class="quiet" aria-label={`${u.state === 'sending' ? 'Stop' : 'Forget'} ${visible(u.at.path.split('/').pop()!)}`} onClick={() => uploads.stop(u)}>
                {'\u2715'}
              </button>
            )}
          </li>
        ))}
        {all.length > first.length && <li class="faint">and {all.length - first.length} more</li>}
      </ul>
    </section>
  );
}

/** The most files of one drop. */
const mostDropped = 10_000;

/** What was dropped: files, and those in directories with their paths. */
export async function dropped(data: DataTransfer): Promise<{ file: File; name: string }[]> {
  const found: { file: File; name: string }[] = [];
  const visit = async (entry: FileSystemEntry, above: string): Promise<void> => {
    if (found.length >= mostDropped) throw new Error(`more than ${mostDropped} files; upload a tar of them, and unpack it there`);
    const name = above + entry.name;
    if (entry.isFile) {
      found.push({ file: await new Promise<File>((ok, fail) => (entry as FileSystemFileEntry).file(ok, fail)), name });
      return;
    }
    const reader = (entry as FileSystemDirectoryEntry).createReader();
    for (;;) {
      const some = await new Promise<FileSystemEntry[]>((ok, fail) => reader.readEntries(ok, fail));
      if (some.length === 0) return;
      for (const e of some) await visit(e, `${name}/`);
    }
  };
  // All are asked for before anything is waited for: they are gone then.
  const entries = [...data.items].filter((i) => i.kind === 'file').map((i) => i.webkitGetAsEntry() ?? i.getAsFile());
  for (const e of entries) {
    if (e instanceof File) found.push({ file: e, name: e.name });
    else if (e) await visit(e, '');
  }
  return found;
}
