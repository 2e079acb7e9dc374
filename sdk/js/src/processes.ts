// Processes of one place: the machine of the server, or a sandbox.

import type { MessageInitShape } from '@bufbuild/protobuf';
import { bytesOf, type Bytes } from '#platform';
import { join } from './bytes.js';
import { hasCode, InvalidError, protocolError } from './errors.js';
import { ProcessService } from './gen/tend/v1/process_pb.js';
import type { SpecSchema } from './gen/tend/v1/spec_pb.js';
import type { Link } from './link.js';
import { fromInfo, onExit, toSelector, toSpec } from './messages.js';
import { Process } from './process.js';
import { randomHex } from './random.js';
import { Reader } from './reader.js';
import { shellStatus, type Exit, type Filter, type Info, type Selector, type Spec } from './types.js';

/** How a command ended, and what it wrote. */
export interface Result {
  /** The exit code is 0. */
  success: boolean;
  /** As a shell shows it: 128+n for signal n, 124 for a timeout, -1 if the end was not witnessed. */
  exitCode: number;
  stdout: Bytes;
  stderr: Bytes;
  /** Bytes before those kept. */
  stdoutDropped: number;
  stderrDropped: number;
  exit: Exit;
}

/** Options of run, besides what to start. */
export interface RunOptions {
  /** Written to stdin, which is then closed. */
  input?: Uint8Array | string;
  /** Newest bytes kept of each stream. Default 16 MiB. */
  maxOutput?: number;
  /** Kills the command; one that is about to start, as soon as it runs. */
  signal?: AbortSignal;
}

/** Starts and finds the processes of one place, and no others. */
export class Processes {
  readonly #link: Link;
  readonly #headers?: Record<string, string>;

  /** @internal Made by Client and Sandbox. */
  constructor(link: Link, headers?: Record<string, string>) {
    this.#link = link;
    this.#headers = headers;
  }

  /** Starts a process, and resolves when the kernel runs the program. */
  async start(spec: Spec, signal?: AbortSignal): Promise<Process> {
    if (this.#headers && onExit(spec)) throw new InvalidError('onExit', 'is for processes of the machine, not for those of a sandbox; wait tells of their end');
    return this.#start(toSpec({ ...spec, id: spec.id || newID() }), signal);
  }

  async #start(message: MessageInitShape<typeof SpecSchema>, signal?: AbortSignal): Promise<Process> {
    const res = await this.#link.call(ProcessService.method.start, { spec: message }, { signal, headers: this.#headers });
    return new Process(this.#link, fromInfo(res.info, message.id), this.#headers);
  }

  /** A handle to a process that runs or has run, whichever client started it. */
  async get(selector: Selector, signal?: AbortSignal): Promise<Process> {
    const res = await this.#link.call(ProcessService.method.get, { process: toSelector(selector) }, { signal, headers: this.#headers });
    return new Process(this.#link, fromInfo(res.info, 'id' in selector ? selector.id : undefined), this.#headers);
  }

  /** A handle to a process that list told of. */
  attach(info: Info): Process {
    return new Process(this.#link, info, this.#headers);
  }

  /** All processes that the filter selects, oldest first. */
  async list(filter: Filter = {}, signal?: AbortSignal): Promise<Info[]> {
    const all: Info[] = [];
    for (let after = ''; ; ) {
      const res = await this.#link.call(ProcessService.method.list, { live: filter.live, tag: filter.tag, labels: filter.labels, after }, { signal, headers: this.#headers });
      for (const m of res.processes) all.push(fromInfo(m));
      if (!res.next) return all;
      if (res.processes.length === 0 || res.next === after) throw protocolError('a list that does not go on');
      after = res.next;
    }
  }

  /**
   * Runs a command to its end, and forgets it. Without a descendant that holds
   * them open, all output is there; such a one is not waited for.
   */
  async run(spec: Spec, options: RunOptions = {}): Promise<Result> {
    options.signal?.throwIfAborted();
    if (onExit(spec)) throw new InvalidError('onExit', 'is for start: run waits for the end itself, and forgets the process');
    const message = toSpec({ ...spec, id: spec.id || newID(), stdin: options.input === undefined ? spec.stdin : 'pipe' });
    const run = () => this.#run(message.id!, this.#link.runs ? message : undefined, options, !spec.id);
    if (!this.#link.runs) await this.#start(message);
    try {
      return await run();
    } catch (err) {
      if (!this.#link.runs || !hasCode(err, 'unsupported')) throw err;
    }
    this.#link.lacksRuns();
    await this.#start(message);
    return run();
  }

  /**
   * spec: of a process that is not started yet. An abort does not end the start: nobody
   * would kill what it has started by then. once: no other process will have this id.
   */
  async #run(id: string, spec: MessageInitShape<typeof SpecSchema> | undefined, options: RunOptions, once: boolean): Promise<Result> {
    const max = options.maxOutput ?? 16 << 20;
    const process = new Process(this.#link, { ...notKnown, id }, this.#headers);
    const events = new Reader(this.#link, id, { drain: 200 }, this.#headers, spec);
    let fed: Promise<unknown> | undefined;
    let begun = false;
    const kill = () => begun && void process.kill().catch(() => {});
    const begin = () => {
      begun = true;
      if (options.signal?.aborted) kill();
      // A process need not read all its input.
      if (options.input !== undefined) fed = process.write(options.input).then(() => process.closeStdin()).catch((err: unknown) => err);
    };
    options.signal?.addEventListener('abort', kill, { once: true });
    if (!spec) begin();
    try {
      const kept = { stdout: new Tail(max), stderr: new Tail(max) };
      let exit: Exit | undefined;
      for await (const event of events) {
        if (!begun) begin();
        if (event.kind === 'exited') exit = event.exit;
        if (event.kind === 'output') kept[event.stream === 'stderr' ? 'stderr' : 'stdout'].add(event.data);
        if (event.kind === 'gap') kept[event.stream === 'stderr' ? 'stderr' : 'stdout'].skip(event.to - event.from);
      }
      const err = await fed;
      if (err && !hasCode(err, 'exited', 'stdin_closed')) throw err;
      if (!exit) throw protocolError('the end of the output without an exit');
      const exitCode = shellStatus(exit);
      return {
        success: exitCode === 0,
        exitCode,
        stdout: kept.stdout.bytes(),
        stderr: kept.stderr.bytes(),
        stdoutDropped: kept.stdout.dropped,
        stderrDropped: kept.stderr.dropped,
        exit,
      };
    } finally {
      options.signal?.removeEventListener('abort', kill);
      if (begun) this.#link.forget(id, this.#headers, once);
    }
  }
}

/** A handle needs the id alone. */
const notKnown: Omit<Info, 'id'> = { pid: 0, spec: {}, state: 'running', treeGone: false, streams: [], stdin: { open: false, accepted: 0 }, pinned: false, specCut: false, damaged: '' };

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** A fresh process id: 48 bits of time and 80 random ones, so that ids sort by age. */
export function newID(): string {
  let n = (BigInt(Date.now()) << 80n) | BigInt(`0x${randomHex(10)}`);
  let id = '';
  for (let i = 0; i < 26; i++, n >>= 5n) id = alphabet[Number(n & 31n)] + id;
  return id;
}

/** The newest bytes of a stream. */
class Tail {
  #parts: Uint8Array[] = [];
  #length = 0;
  dropped = 0;

  constructor(private readonly max: number) {}

  add(data: Uint8Array): void {
    this.#parts.push(data.slice()); // not a view of a message that is larger
    this.#length += data.length;
    while (this.#length - (this.#parts[0]?.length ?? 0) >= this.max && this.#parts.length > 0) this.#cut(this.#parts.shift()!.length);
  }

  skip(n: number): void {
    this.dropped += n + this.#length;
    this.#parts = [];
    this.#length = 0;
  }

  bytes(): Bytes {
    const all = bytesOf(join(this.#parts, this.#length));
    const over = Math.max(0, all.length - this.max);
    this.dropped += over;
    return all.subarray(over);
  }

  #cut(n: number): void {
    this.#length -= n;
    this.dropped += n;
  }
}
