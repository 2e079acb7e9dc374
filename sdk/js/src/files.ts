// Files of one place: the machine of the server, or a sandbox.

import type { DescMessage, DescMethod, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { bytesOf, packDir, unpackDir, type Bytes } from '#platform';
import { join } from './bytes.js';
import { clean, hasCode, InvalidError, protocolError, TendError } from './errors.js';
import { FileService, FileType, type FileEntry as Entry, type ReadFileResponse } from './gen/tend/v1/sandbox_pb.js';
import type { Link } from './link.js';
import { fromInt, fromTimestamp, text, toInt } from './messages.js';
import { Scope } from './scope.js';
import { ConnectionError, type Answer } from './transport.js';
import { parseJSON, wireError } from './refusal.js';

/** Describes a path. For a symbolic link, type and mode are those of its target. */
export interface FileEntry {
  name: string;
  path: string;
  type: 'file' | 'dir' | 'other';
  size: number;
  /** Permission bits. */
  mode: number;
  owner: string;
  group: string;
  modified?: Date;
  /** For a symbolic link: the final target. */
  target: string;
}

/** A change in a watched directory. */
export interface FileEvent {
  /** Below the watched directory, which is "." itself. */
  path: string;
  /** `rename`: of the former name; the new one is created. `chmod`: mode, owner, times or attributes. */
  kind: 'create' | 'write' | 'remove' | 'rename' | 'chmod';
  /** What was created is a directory. */
  dir: boolean;
}

/** A line of a watch. */
interface Line {
  path?: string;
  kind?: FileEvent['kind'];
  dir?: boolean;
  goingAway?: boolean;
  error?: object;
}

/**
 * The changes in a directory, one after the other. The error that ends it has the code `lagged` if changes may be missing: the server kept
 * no more of them, it went away, or the connection was lost; then list the directory, and watch again. `not_found`: the directory is gone.
 */
export class FileWatcher implements AsyncIterableIterator<FileEvent> {
  readonly #lines: AsyncGenerator<Line, void, void>;
  readonly #scope: Scope;
  #end: { error?: unknown } | undefined;

  /** @internal Made by Files. */
  constructor(lines: AsyncGenerator<Line, void, void>, scope: Scope) {
    this.#lines = lines;
    this.#scope = scope;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<FileEvent, undefined>> {
    while (!this.#end) {
      try {
        const { value } = await this.#lines.next();
        if (!value || value.goingAway) throw new ConnectionError('the server went away');
        if (value.error) throw wireError(value.error);
        if (value.kind) return { done: false, value: { path: value.path ?? '', kind: value.kind, dir: value.dir ?? false } };
      } catch (err) {
        const { aborted, reason } = this.#scope.signal;
        const lost = err instanceof ConnectionError;
        this.#stop({ error: aborted ? reason : lost ? new TendError('lagged', `the watch ended, and changes may be missing; list the directory, and watch again: ${err.message}`, { cause: err }) : err });
      }
    }
    if ('error' in this.#end) throw this.#end.error;
    return { done: true, value: undefined };
  }

  /** Ends the watch. */
  async return(): Promise<IteratorResult<FileEvent, undefined>> {
    this.#stop({});
    return { done: true, value: undefined };
  }

  #stop(end: { error?: unknown }): void {
    this.#end ??= end;
    this.#scope.abort(new TendError('closed', 'the watch was closed'));
    this.#scope.end();
  }
}

/** The most bytes of a line. */
const maxLine = 1 << 20;

async function* jsonLines(parts: AsyncGenerator<Uint8Array, void, void>): AsyncGenerator<Line, void, void> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const part of parts) {
    const lines = (rest + decoder.decode(part, { stream: true })).split('\n');
    rest = lines.pop()!;
    if (rest.length > maxLine) throw protocolError('a line that does not end');
    for (const line of lines) {
      const value = parseJSON(line) as Line | undefined;
      if (!value) throw protocolError('a line that is no JSON');
      yield value;
    }
  }
}

/** How much of a file one message has. */
const pieceSize = 256 << 10;

function fromEntry(m: Entry | undefined): FileEntry {
  if (!m) throw protocolError('no file');
  const type = m.type === FileType.FILE ? 'file' : m.type === FileType.DIR ? 'dir' : 'other';
  return { name: m.name, path: m.path, type, size: fromInt('a size', m.size), mode: m.mode & 0o7777, owner: m.owner, group: m.group, modified: fromTimestamp(m.modified), target: m.target };
}

/**
 * File operations in a sandbox or on the server's machine, with the rights of a user there. Paths
 * that are not absolute start at the sandbox's directory, and on the machine at the user's home. No
 * link inside leads out of a sandbox. Errors have the codes `not_found`, `exists`, `permission`,
 * `limit` (no room).
 */
export class Files {
  readonly #link: Link;
  readonly #headers?: Record<string, string>;
  readonly #user: string;

  /** @internal Made by Client and Sandbox. */
  constructor(link: Link, headers?: Record<string, string>, user = '') {
    this.#link = link;
    this.#headers = headers;
    this.#user = user;
  }

  /** The same with the rights of another user; '': the sandbox's default user, or the daemon's. */
  as(user: string): Files {
    return new Files(this.#link, this.#headers, text('user', user));
  }

  #call<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, input: MessageInitShape<I>, signal?: AbortSignal): Promise<MessageShape<O>> {
    return this.#link.call(method, input, { signal, headers: this.#headers });
  }

  /** Describes a path. It does not follow a last symbolic link. */
  async stat(path: string, signal?: AbortSignal): Promise<FileEntry> {
    return fromEntry((await this.#call(FileService.method.statFile, { path: text('path', path), user: this.#user }, signal)).entry);
  }

  /** Whether there is something at a path; a symbolic link counts wherever it leads. */
  async exists(path: string, signal?: AbortSignal): Promise<boolean> {
    return this.stat(path, signal).then(() => true, (err: unknown) => {
      if (!hasCode(err, 'not_found')) throw err;
      return false;
    });
  }

  /** The entries of a directory in lexical order, each directory before its own entries, down to depth levels. */
  async list(path = '.', options: { depth?: number; signal?: AbortSignal } = {}): Promise<FileEntry[]> {
    const res = await this.#call(FileService.method.listFiles, { path: text('path', path), user: this.#user, depth: options.depth ?? 1 }, options.signal);
    return res.entries.map(fromEntry);
  }

  /**
   * A file from an offset, in pieces. A lost connection is replaced, and reading
   * continues; `changed`: the file has another size then.
   */
  async *stream(path: string, options: { from?: number; signal?: AbortSignal } = {}): AsyncGenerator<Bytes, void, void> {
    let at = options.from ?? 0;
    let size = -1;
    const request = () => ({ path: text('path', path), user: this.#user, offset: toInt('from', at) });
    request();
    const open = (signal: AbortSignal) => this.#link.connect.stream(FileService.method.readFile, request(), { signal, headers: this.#headers });
    const take = (m: ReadFileResponse): { value?: Bytes; progress: boolean } => {
      const now = fromInt('a size', m.size);
      if (now > 0 && size >= 0 && now !== size) throw new TendError('changed', `${path} was changed while it was read; read it again`);
      if (now > 0) size = now;
      at += m.data.length;
      return { value: m.data.length ? bytesOf(m.data) : undefined, progress: true };
    };
    yield* this.#link.follow(open, take, () => false, options.signal);
  }

  /** The content of a file. */
  async read(path: string, signal?: AbortSignal): Promise<Bytes> {
    const parts: Uint8Array[] = [];
    for await (const part of this.stream(path, { signal })) parts.push(part);
    return bytesOf(join(parts, parts.reduce((n, part) => n + part.length, 0)));
  }

  /**
   * Creates a file, and the directories above it, or replaces its content; an existing
   * file keeps its mode. A call that fails in its first 64 KiB changes nothing; a longer
   * one leaves the part that has arrived. It is repeated when the connection is lost.
   */
  async write(path: string, data: Uint8Array | string, signal?: AbortSignal): Promise<FileEntry> {
    if (typeof data !== 'string' && !(data instanceof Uint8Array)) throw new InvalidError('data', 'is neither text nor a Uint8Array');
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
    const messages: MessageInitShape<typeof FileService.method.writeFile.input>[] = [];
    for (let at = 0; at === 0 || at < bytes.length; at += pieceSize) {
      const head = at === 0 ? { path: text('path', path), user: this.#user } : {};
      messages.push({ ...head, data: bytes.subarray(at, at + pieceSize) });
    }
    return this.#link.whole(signal, async (s) => {
      for await (const m of this.#link.connect.stream(FileService.method.writeFile, messages, { signal: s, headers: this.#headers })) return fromEntry(m.entry);
      throw protocolError('no answer to a write');
    });
  }

  #archive(method: 'GET' | 'PUT', dir: string, body: Uint8Array | AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<Answer> {
    const query = new URLSearchParams({ path: text('path', dir), user: this.#user });
    return this.#link.connect.plain(method, `Archive?${query}`, 'application/x-tar', body, { signal, headers: this.#headers });
  }

  /**
   * Copies what is in a directory of this machine into one of the server, which is created if it is missing. Files
   * replace those of their names; what else is there stays. Modes, times and symbolic links are kept; devices, sockets
   * and FIFOs are left out. A copy that fails leaves what has arrived. It is repeated when the connection is lost. Not in browsers.
   */
  async uploadDir(local: string, remote: string, signal?: AbortSignal): Promise<void> {
    await this.#link.whole(signal, async (s) => (await this.#archive('PUT', remote, await packDir(local), s)).cancel());
  }

  /**
   * Copies what is in a directory of the server into one of this machine, which is created if it is missing. Files
   * replace those of their names; what else is there stays. Resolves with what was left out, a line for each: what could
   * not be read, and symbolic links that lead out of the directory. It is repeated when the connection is lost. Not in browsers.
   */
  async downloadDir(remote: string, local: string, signal?: AbortSignal): Promise<string[]> {
    return this.#link.whole(signal, async (s) => {
      const answer = await this.#archive('GET', remote, new Uint8Array(), s);
      try {
        return (await unpackDir(this.#link.body(answer), local)).map(clean);
      } finally {
        answer.cancel();
      }
    });
  }

  /**
   * Reports the changes in a directory from when it resolves on, and with `recursive` in those below it as well, new ones too. On network
   * filesystems there is no watch. Iterate over it: it ends by an error, or by `return` or the signal.
   */
  async watch(dir = '.', options: { recursive?: boolean; signal?: AbortSignal } = {}): Promise<FileWatcher> {
    const query = new URLSearchParams({ path: text('path', dir), user: this.#user, recursive: `${options.recursive ?? false}` });
    return this.#link.whole(options.signal, async () => {
      const scope = new Scope(options.signal, this.#link.closed.signal);
      try {
        const answer = await this.#link.connect.plain('GET', `Watch?${query}`, 'application/x-ndjson', new Uint8Array(), { signal: scope.signal, headers: this.#headers });
        const lines = jsonLines(this.#link.body(answer));
        const first = await lines.next();
        if (first.done) throw new ConnectionError('the answer broke off');
        return new FileWatcher(lines, scope);
      } catch (err) {
        scope.abort(err);
        scope.end();
        throw err;
      }
    });
  }

  /** Creates a directory and those above it. It is not repeated when the answer is lost. `exists`: it already exists. */
  async mkdir(path: string, signal?: AbortSignal): Promise<FileEntry> {
    return fromEntry((await this.#link.once(FileService.method.makeDir, { path: text('path', path), user: this.#user }, { signal, headers: this.#headers })).entry);
  }

  /** Gives a file or directory another path. It is not repeated when the answer is lost. */
  async move(source: string, destination: string, signal?: AbortSignal): Promise<FileEntry> {
    const request = { source: text('source', source), destination: text('destination', destination), user: this.#user };
    return fromEntry((await this.#link.once(FileService.method.moveFile, request, { signal, headers: this.#headers })).entry);
  }

  /** Removes a file, or a directory with its content. A missing path is no error. */
  async remove(path: string, signal?: AbortSignal): Promise<void> {
    await this.#call(FileService.method.removeFile, { path: text('path', path), user: this.#user }, signal).catch((err: unknown) => {
      if (!hasCode(err, 'not_found')) throw err;
    });
  }
}
