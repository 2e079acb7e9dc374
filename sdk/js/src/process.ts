// One process of the server.

import { bytesOf, readable, writable, type Bytes, type InputWritable, type OutputReadable } from '#platform';
import { GapError, hasCode, InvalidError, protocolError, TendError } from './errors.js';
import { ProcessService, type WaitRequestSchema, type WaitResponse } from './gen/tend/v1/process_pb.js';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { Link } from './link.js';
import { fromExit, fromInfo, fromInt, fromStream, fromStreams, scopes, streamNumbers, toDuration, toInt } from './messages.js';
import { Reader } from './reader.js';
import { ConnectionError } from './transport.js';
import type { Exit, Info, OutputStream, ReadOptions, Scope, StreamInfo } from './types.js';
import { grep, view, type GrepOptions, type Match, type Piece, type ViewOptions } from './views.js';
import { Writer } from './writer.js';

/** What to wait for; without one, the exit. The exit ends every wait. */
export type Until =
  | { quiet: number } // milliseconds without output
  | { match: RegExp | string; from?: { [stream in OutputStream]?: number } } // RE2; of a RegExp its source
  | { port: number } // somebody of the tree listens there
  | { input: true } // it waits for input
  | { treeGone: true } // no descendant is left
  | { eof: true }; // each stream is at its end

/** What ended a wait. */
export interface WaitResult {
  /** The condition holds; false: the process exited first. */
  met: boolean;
  exit?: Exit;
  /** Of `match`: the text, and where it is. */
  match?: Bytes;
  stream?: OutputStream;
  offset?: number;
  /** Of `port`. */
  listening: { address: string; pid: number }[];
  streams: StreamInfo[];
}

/** What a kill has done. */
export interface KillResult {
  /** False: the process had already exited. Its remaining descendants are ended in any case. */
  killed: boolean;
  /** Processes that the kernel has not ended yet. */
  survivors: number[];
}

/**
 * A handle to a process. It has only the id: a process may have any number of handles, of
 * any client, and outlives them all.
 */
export class Process {
  readonly #link: Link;
  readonly #headers?: Record<string, string>;
  readonly #writer: Writer;
  /** The state when the handle was created. */
  readonly info: Info;

  /** @internal Made by Client. */
  constructor(link: Link, info: Info, headers?: Record<string, string>) {
    this.#link = link;
    this.info = info;
    this.#headers = headers;
    this.#writer = new Writer(link, info.id, headers);
  }

  get id(): string {
    return this.info.id;
  }

  /** The kernel's pid, which may be reused after the exit. */
  get pid(): number {
    return this.info.pid;
  }

  get #selector() {
    return { by: { case: 'id' as const, value: this.id } };
  }

  /** Its present state. */
  async refresh(signal?: AbortSignal): Promise<Info> {
    const res = await this.#link.call(ProcessService.method.get, { process: this.#selector }, { signal, headers: this.#headers });
    return fromInfo(res.info, this.id);
  }

  /** Its output and facts, by default all from the beginning to the end. */
  read(options: ReadOptions = {}): Reader {
    return new Reader(this.#link, this.id, options, this.#headers);
  }

  /**
   * One stream from its first byte, with back-pressure: a Readable of Buffers, in a
   * browser a ReadableStream. Bytes that were freed before they were read are an
   * error: GapError. endIfRemoved: it ends, instead of an error, when the process was
   * removed or its sandbox stopped.
   */
  output(stream: OutputStream, options: Omit<ReadOptions, 'streams'> & { endIfRemoved?: boolean } = {}): OutputReadable {
    let events: Reader | undefined;
    const next = async (): Promise<Bytes | undefined> => {
      events ??= this.read({ ...options, streams: [stream] });
      try {
        for (;;) {
          const { value: event, done } = await events.next();
          if (done) return undefined;
          if (event.kind === 'gap') throw new GapError(stream, event.from, event.to);
          if (event.kind === 'output' && event.stream === stream) return event.data;
        }
      } catch (err) {
        if (!options.endIfRemoved || !hasCode(err, 'not_found', 'sandbox_stopped')) throw err;
      }
      return undefined;
    };
    return readable(next, () => events?.close());
  }

  /** Stdin as a Writable, in a browser a WritableStream. Ending it closes stdin. */
  input(): InputWritable {
    return writable((data) => this.write(data), () => this.closeStdin());
  }

  /**
   * Sends input. Calls are queued: what is written first arrives first, each byte once. It
   * resolves when the server has accepted it, which waits while the process does not read.
   * signal ends the waiting; a part may have been accepted by then, and its rest never comes.
   */
  write(data: Uint8Array | string, options: { signal?: AbortSignal } = {}): Promise<void> {
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
    if (bytes.length === 0) return Promise.resolve();
    return this.#writer.write(bytes, false, options.signal);
  }

  /** Closes stdin after what was written. */
  closeStdin(options: { signal?: AbortSignal } = {}): Promise<void> {
    return this.#writer.write(new Uint8Array(0), true, options.signal);
  }

  /** What it has written until now: the beginning and the end; a marker reports what is left out between them. */
  view(options: ViewOptions = {}): Promise<Piece[]> {
    return view(this.#link, this.id, options, this.#headers);
  }

  /** The matching lines of what it has written until now: RE2, at most 4 KiB; for a RegExp, its source. */
  grep(pattern: RegExp | string, options: GrepOptions = {}): Promise<Match[]> {
    return grep(this.#link, this.id, pattern, options, this.#headers);
  }

  /** Waits for the exit, or a condition. It may be called any number of times. */
  async wait(until?: Until, signal?: AbortSignal): Promise<WaitResult> {
    const request: MessageInitShape<typeof WaitRequestSchema> = { process: this.#selector, until: toUntil(until) };
    const open = (s: AbortSignal) => this.#link.connect.stream(ProcessService.method.wait, request, { signal: s, headers: this.#headers });
    const take = ({ answer }: WaitResponse): { value?: WaitResult; progress: boolean } => {
      switch (answer.case) {
        case 'goingAway':
          throw ConnectionError.of('away', 'the server went away again and again');
        case 'result': {
          const r = answer.value;
          return {
            value: {
              met: r.met,
              exit: r.exit && fromExit(r.exit),
              match: r.match.length ? bytesOf(r.match) : undefined,
              stream: r.stream ? fromStream(r.stream) : undefined,
              offset: r.stream ? fromInt('the offset of a match', r.offset) : undefined,
              listening: r.listening.map((l) => ({ address: l.address, pid: l.pid })),
              streams: fromStreams(r.streams),
            },
            progress: true,
          };
        }
      }
      return { progress: true };
    };
    for await (const result of this.#link.follow(open, take, () => false, signal)) return result;
    throw protocolError('no result of a wait');
  }

  /**
   * Ends the process and all its descendants, and resolves when they are gone. A kill
   * whose answer was lost is sent again: it can only mean this process.
   */
  async kill(signal?: AbortSignal): Promise<KillResult> {
    let tries = 0;
    try {
      const res = await this.#link.call(ProcessService.method.kill, () => (tries++, { process: this.#selector }), { signal, headers: this.#headers });
      return { killed: true, survivors: res.survivors };
    } catch (err) {
      if (!hasCode(err, 'exited')) throw err;
      if (tries === 1) return { killed: false, survivors: [] };
    }
    // By one whose answer was lost, or by itself before.
    return { killed: (await this.refresh(signal)).exit?.cause === 'killed', survivors: [] };
  }

  /** Sends a signal. It is not repeated: a signal may have an effect each time it is sent. */
  async signal(number: number, scope: Scope = 'tree'): Promise<void> {
    await this.#link.once(ProcessService.method.signal, { process: this.#selector, signal: number, scope: scopes[scope] }, { headers: this.#headers });
  }

  /** Changes the size of the terminal. */
  async resize(cols: number, rows: number): Promise<void> {
    await this.#link.call(ProcessService.method.resize, { process: this.#selector, size: { cols, rows } }, { headers: this.#headers });
  }

  /** Frees output before an offset, for the retention policy `block`. */
  async trim(stream: OutputStream, before: number): Promise<void> {
    await this.#link.call(ProcessService.method.trim, { process: this.#selector, stream: streamNumbers[stream], before: toInt('before', before) }, { headers: this.#headers });
  }

  /** Keeps it when it has finished, until it is unpinned or removed. */
  async pin(pinned = true): Promise<void> {
    await this.#link.call(ProcessService.method.pin, { process: this.#selector, pinned }, { headers: this.#headers });
  }

  /** Forgets it, once it has finished, and frees its output. */
  async remove(signal?: AbortSignal): Promise<void> {
    let tries = 0;
    try {
      await this.#link.call(ProcessService.method.remove, () => (tries++, { process: this.#selector }), { signal, headers: this.#headers });
    } catch (err) {
      if (!(err instanceof TendError && err.code === 'not_found' && this.#link.maybeAgain(tries))) throw err;
    }
  }
}

function toUntil(until: Until | undefined): MessageInitShape<typeof WaitRequestSchema>['until'] {
  if (!until) return undefined;
  if ('quiet' in until) return { case: 'quiet', value: toDuration('quiet', until.quiet) };
  if ('port' in until) return { case: 'port', value: until.port };
  if ('input' in until) return { case: 'input', value: true };
  if ('treeGone' in until) return { case: 'treeGone', value: true };
  if ('eof' in until) return { case: 'eof', value: true };
  if (!('match' in until)) throw new InvalidError('until', 'names nothing to wait for; quiet, match, port, input, treeGone and eof are known, and nothing is the exit');
  const pattern = typeof until.match === 'string' ? until.match : until.match.source;
  const from = Object.entries(until.from ?? {}).map(([stream, offset]) => ({ stream: streamNumbers[stream as OutputStream], offset: toInt('from', offset ?? 0) }));
  return { case: 'match', value: { pattern, from } };
}
