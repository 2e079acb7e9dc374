// A client of one tend server.

import type { AgentOptions } from 'node:https';
import { randomBytes } from 'node:crypto';
import { hasCode, protocolError, TendError } from './errors.js';
import { AdminService } from './gen/tend/v1/admin_pb.js';
import { ProcessService } from './gen/tend/v1/process_pb.js';
import { defaults } from './home.js';
import { Link } from './link.js';
import { fromInfo, toSelector, toSpec } from './messages.js';
import { Process } from './process.js';
import type { RetryOptions } from './retry.js';
import { Scope } from './scope.js';
import { Transport } from './transport.js';
import { shellStatus, type Exit, type Filter, type Info, type Selector, type Spec } from './types.js';

/** How to reach a server. The zero value is the daemon of the current user. */
export interface ClientOptions {
  /**
   * http://HOST:PORT, https://HOST or unix:///PATH. Default: TEND_URL, else where
   * the daemon of the current user listens, as the tend command line finds it.
   */
  url?: string;
  /** Sent with each request. Default: none with a url, else TEND_TOKEN: it is not given to a server that it is not for. */
  token?: string;
  /** TLS of https URLs: ca, cert, key, … */
  tls?: AgentOptions;
  retry?: RetryOptions;
  /** Milliseconds in which a server must say something. Default 45,000: three of its heartbeats. */
  silence?: number;
  /** Receives a line for each reconnect. */
  log?: (message: string) => void;
  /** Ends the connecting. */
  signal?: AbortSignal;
}

/** How a command ended, and what it wrote. */
export interface Result {
  /** The exit code is 0. */
  success: boolean;
  /** As a shell shows it: 128+n for signal n, 124 for a timeout, -1 if the end was not witnessed. */
  exitCode: number;
  stdout: Buffer;
  stderr: Buffer;
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
  /** Kills the command. */
  signal?: AbortSignal;
}

/** Speaks to one tend server. */
export class Client {
  readonly #link: Link;

  private constructor(link: Link) {
    this.#link = link;
  }

  /**
   * Connects, and sends a hello. If no program listens there, the error has the
   * code `no_daemon`. From then on lost connections are replaced.
   */
  static async connect(options: ClientOptions = {}): Promise<Client> {
    const found = options.url ? { urls: [options.url], token: undefined } : await defaults();
    let last: unknown;
    for (const url of found.urls) {
      const link = new Link(url, new Transport(url, options.token || found.token, options.tls), options);
      try {
        await hello(link, options.signal);
        return new Client(link);
      } catch (err) {
        link.close();
        if (!hasCode(err, 'no_daemon')) throw err;
        last = err;
      }
    }
    if (found.urls.length < 2) throw last;
    throw new TendError('no_daemon', `no daemon listens (tried ${found.urls.join(', ')}); start one: tend serve`);
  }

  get url(): string {
    return this.#link.url;
  }

  /** The server's version, and its instance: another one means that it was restarted. */
  get server(): { version: string; instance: string } {
    return { version: this.#link.version, instance: this.#link.instance };
  }

  /** Starts a process, and resolves when the kernel runs the program. */
  async start(spec: Spec, signal?: AbortSignal): Promise<Process> {
    const message = toSpec({ ...spec, id: spec.id || newID() });
    const res = await this.#link.call(ProcessService.method.start, { spec: message }, { signal });
    return new Process(this.#link, fromInfo(res.info, message.id));
  }

  /** A handle to a process that runs or has run, whichever client started it. */
  async get(selector: Selector, signal?: AbortSignal): Promise<Process> {
    const res = await this.#link.call(ProcessService.method.get, { process: toSelector(selector) }, { signal });
    return new Process(this.#link, fromInfo(res.info, 'id' in selector ? selector.id : undefined));
  }

  /** A handle to a process that list told of. */
  attach(info: Info): Process {
    return new Process(this.#link, info);
  }

  /** All processes that the filter selects, oldest first. */
  async list(filter: Filter = {}, signal?: AbortSignal): Promise<Info[]> {
    const all: Info[] = [];
    for (let after = ''; ; ) {
      const res = await this.#link.call(ProcessService.method.list, { live: filter.live, tag: filter.tag, labels: filter.labels, after }, { signal });
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
    const max = options.maxOutput ?? 16 << 20;
    const process = await this.start({ ...spec, stdin: options.input === undefined ? spec.stdin : 'pipe' }, options.signal);
    const kill = () => void process.kill().catch(() => {});
    options.signal?.addEventListener('abort', kill, { once: true });
    if (options.signal?.aborted) kill();
    try {
      // A process need not read all its input.
      const fed = options.input === undefined ? undefined : process.write(options.input).then(() => process.closeStdin()).catch((err: unknown) => err);
      const kept = { stdout: new Tail(max), stderr: new Tail(max) };
      let exit: Exit | undefined;
      for await (const event of process.read({ drain: 200 })) {
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
      await process.remove().catch(() => {}); // it is kept until its time is over, then
    }
  }

  /** What the daemon says of itself. */
  async status(signal?: AbortSignal): Promise<{ version: string; url: string; stateDir: string; roles: Record<string, number>; processes: number }> {
    const res = await this.#link.call(AdminService.method.status, {}, { signal });
    const roles: Record<string, number> = {};
    for (const [name, role] of Object.entries(res.roles)) roles[name] = Number(role.pid);
    return { version: res.version, url: res.url, stateDir: res.stateDir, roles, processes: Number(res.processes) };
  }

  /** Ends all calls, readers and connections of this client. Processes are not touched. */
  close(): void {
    this.#link.close();
  }
}

/** A server that is being replaced is waited for; one that is not there is not. */
async function hello(link: Link, signal?: AbortSignal): Promise<void> {
  const scope = new Scope(signal);
  const attempts = link.attempts();
  try {
    for (;;) {
      try {
        return await link.hello(scope.signal);
      } catch (err) {
        const final = link.final(err);
        if (!hasCode(final, 'unavailable') && !scope.signal.aborted) throw final;
        await link.again(err, attempts, scope.signal);
      }
    }
  } finally {
    scope.end();
  }
}

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** A fresh process id: 48 bits of time and 80 random ones, so that ids sort by age. */
export function newID(): string {
  let n = (BigInt(Date.now()) << 80n) | BigInt(`0x${randomBytes(10).toString('hex')}`);
  let id = '';
  for (let i = 0; i < 26; i++, n >>= 5n) id = alphabet[Number(n & 31n)] + id;
  return id;
}

/** The newest bytes of a stream. */
class Tail {
  #parts: Buffer[] = [];
  #length = 0;
  dropped = 0;

  constructor(private readonly max: number) {}

  add(data: Buffer): void {
    this.#parts.push(Buffer.from(data)); // not a view of a message that is larger
    this.#length += data.length;
    while (this.#length - (this.#parts[0]?.length ?? 0) >= this.max && this.#parts.length > 0) this.#cut(this.#parts.shift()!.length);
  }

  skip(n: number): void {
    this.dropped += n + this.#length;
    this.#parts = [];
    this.#length = 0;
  }

  bytes(): Buffer {
    const all = Buffer.concat(this.#parts, this.#length);
    const over = Math.max(0, all.length - this.max);
    this.dropped += over;
    return all.subarray(over);
  }

  #cut(n: number): void {
    this.#length -= n;
    this.dropped += n;
  }
}
