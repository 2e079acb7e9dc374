// One sandbox of the server.

import { hasCode, InvalidError, protocolError, TendError } from './errors.js';
import { SandboxService } from './gen/tend/v1/sandbox_pb.js';
import { CodeContexts, type CodeOptions, type CodeResult } from './code.js';
import type { PortStream } from '#platform';
import { Files } from './files.js';
import { Git } from './git.js';
import type { Link } from './link.js';
import { text, toDuration } from './messages.js';
import { Processes } from './processes.js';
import { fromMetric, fromSandbox, fromSnapshot, toUpdate } from './sandbox-messages.js';
import { Scope } from './scope.js';
import type { SandboxAccess, SandboxChange, SandboxInfo, SandboxMetric, SandboxSnapshot, SignedOptions } from './sandbox-types.js';

/**
 * A place on the server with files and processes of its own. How far it is
 * isolated from the server's machine is what its spec asked for and `info` tells.
 * The handle holds nothing but the id: any number of handles, of any client, may
 * be to one sandbox, which outlives them all. What a sandbox that was destroyed is
 * asked for has the code `not_found`.
 */
export class Sandbox {
  readonly #link: Link;
  /** What was known when the handle was made. */
  readonly info: SandboxInfo;
  /** Its processes, and no others. It does not start the sandbox: `sandbox_stopped`, `sandbox_paused`. */
  readonly processes: Processes;
  readonly files: Files;
  /** Those of its cells. */
  readonly codeContexts: CodeContexts;

  /** @internal Made by Client. */
  constructor(link: Link, info: SandboxInfo) {
    this.#link = link;
    this.info = info;
    const headers = { 'Tend-Sandbox': info.id };
    this.processes = new Processes(link, headers);
    this.files = new Files(link, headers);
    this.codeContexts = new CodeContexts(link, headers);
  }

  /** The git repository in a directory of the sandbox, which init or clone makes. A path that is not absolute starts at the sandbox's directory. */
  git(path: string): Git {
    return new Git(this.processes, text('path', path));
  }

  get id(): string {
    return this.info.id;
  }

  /**
   * Runs a cell, as a notebook does, and resolves when it has ended; a cell that fails is
   * no error of this. The sandbox is from the template code-interpreter-v1, or one that
   * begins with it: otherwise `unsupported`. A lost connection, or a server that is
   * replaced, loses nothing.
   */
  code(code: string, options?: CodeOptions): Promise<CodeResult> {
    return this.codeContexts.run(code, options);
  }

  /** What is known of it now. */
  async refresh(signal?: AbortSignal): Promise<SandboxInfo> {
    const res = await this.#link.call(SandboxService.method.get, { sandbox: this.id }, { signal });
    return fromSandbox(res.sandbox, this.id);
  }

  /** Changes what can be changed, in whatever state it is. */
  async update(change: SandboxChange, signal?: AbortSignal): Promise<SandboxInfo> {
    const res = await this.#link.call(SandboxService.method.update, toUpdate(this.id, change), { signal });
    return fromSandbox(res.sandbox, this.id);
  }

  /** Makes a stopped sandbox ready again, with its files, and resumes one that is paused. It is no error if it is ready. */
  async start(signal?: AbortSignal): Promise<void> {
    await this.#link.call(SandboxService.method.start, { sandbox: this.id }, { signal });
  }

  /** Ends all its processes and keeps its files, unless it is disposable. */
  async stop(signal?: AbortSignal): Promise<void> {
    await this.#link.call(SandboxService.method.stop, { sandbox: this.id }, { signal });
  }

  /** Lets its processes stand still. It is no error if they do. `unsupported`: it cannot; stop keeps its files. */
  async pause(signal?: AbortSignal): Promise<void> {
    await this.#link.call(SandboxService.method.pause, { sandbox: this.id }, { signal }).catch(unless('sandbox_paused'));
  }

  /** Lets a paused sandbox go on. It is no error if it is ready. */
  async resume(signal?: AbortSignal): Promise<void> {
    await this.#link.call(SandboxService.method.resume, { sandbox: this.id }, { signal });
  }

  /** Ends all its processes and removes all that belongs to it. It is no error if that was done. */
  async destroy(signal?: AbortSignal): Promise<void> {
    await this.#link.call(SandboxService.method.destroy, { sandbox: this.id }, { signal }).catch(unless('not_found'));
  }

  /** Keeps its files under a name, for later sandboxes. Without one the server makes it up. It is not repeated when the answer is lost. */
  async snapshot(name = '', signal?: AbortSignal): Promise<SandboxSnapshot> {
    const res = await this.#link.once(SandboxService.method.snapshot, { sandbox: this.id, name: text('name', name) }, { signal });
    if (!res.snapshot) throw protocolError('no snapshot');
    return fromSnapshot(res.snapshot);
  }

  /**
   * Makes count sandboxes (1 to 100) with the files that this one has now, without its
   * processes. timeout: milliseconds until they are destroyed; 0: never. An element is
   * an error where a copy was not made. It is not repeated when the answer is lost.
   */
  async fork(count = 1, options: { timeout?: number; signal?: AbortSignal } = {}): Promise<(Sandbox | TendError)[]> {
    if (!Number.isInteger(count) || count < 1 || count > 100) throw new InvalidError('count', `is ${count}; 1 to 100 copies can be made`);
    const timeout = options.timeout ? toDuration('timeout', options.timeout) : undefined;
    const res = await this.#link.once(SandboxService.method.fork, { sandbox: this.id, count, timeout }, { signal: options.signal });
    return res.forks.map((f) => (f.sandbox ? new Sandbox(this.#link, fromSandbox(f.sandbox)) : new TendError('internal', f.error)));
  }

  /** What it used in the last minutes, oldest first. */
  async metrics(signal?: AbortSignal): Promise<SandboxMetric[]> {
    return (await this.#link.call(SandboxService.method.metrics, { sandbox: this.id }, { signal })).metrics.map(fromMetric);
  }

  /**
   * Connects to a TCP port that a program inside listens on, through the server, which needs no port for that. The connection is a
   * Duplex whose sides end one by one, and ends with the server that carries it. signal ends the attempt. Not in browsers.
   */
  async dial(port: number, signal?: AbortSignal): Promise<PortStream> {
    checkPort(port);
    return this.#link.whole(signal, async (s) => {
      const scope = new Scope(s);
      const timer = setTimeout(() => scope.abort(new TendError('unavailable', `port ${port} was not reached in 30 s`)), 30_000);
      try {
        return await this.#link.connect.dial(this.id, port, scope.signal);
      } finally {
        clearTimeout(timer);
        scope.end();
      }
    });
  }

  /** What opens this sandbox alone, for clients of other protocols and for its ports, if they are not public. */
  async access(signal?: AbortSignal): Promise<SandboxAccess> {
    const { token, trafficToken, domains } = await this.#link.call(SandboxService.method.access, { sandbox: this.id }, { signal });
    return { token, trafficToken, domains };
  }

  /**
   * A URL with which anybody may get one file of the sandbox until it expires, by GET and without a token. The path
   * is absolute. user names one inside; default: the sandbox's own. expires: milliseconds from now, 1,000 to those of
   * 7 days; default: an hour. `unsupported`: the server has no TCP port.
   */
  async downloadUrl(path: string, options: SignedOptions = {}): Promise<string> {
    return this.#signed('read', path, options);
  }

  /** A URL like that of downloadUrl with which anybody may write one file by POST: the content as application/octet-stream, or in a form. */
  async uploadUrl(path: string, options: SignedOptions = {}): Promise<string> {
    return this.#signed('write', path, options);
  }

  /** The URL that E2B's protocol has for a file. Its token is the sandbox's alone. */
  async #signed(op: string, path: string, { user = '', expires = 3_600_000, signal }: SignedOptions): Promise<string> {
    if (!text('path', path).startsWith('/')) throw new InvalidError('path', 'is not absolute');
    if (!(expires >= 1000 && expires <= maxSigned)) throw new InvalidError('expires', `is ${expires}; 1000 to ${maxSigned} ms are allowed`);
    const url = await this.#address(signal);
    if (!globalThis.crypto?.subtle) throw new TendError('unsupported', 'browsers sign only in pages that came by HTTPS or from localhost');
    if (!/^https?:/.test(url)) throw new TendError('unsupported', 'the server has no TCP port, as with tend serve');
    const until = String(Math.floor((Date.now() + expires) / 1000));
    const { token } = await this.access(signal);
    const signed = new TextEncoder().encode([path, op, text('user', user), token, until].join(':'));
    const sum = new Uint8Array(await crypto.subtle.digest('SHA-256', signed));
    const signature = `v1_${btoa(String.fromCharCode(...sum)).replace(/=+$/, '')}`;
    return `${url.replace(/\/$/, '')}/files?${new URLSearchParams({ path, username: user, signature, signature_expiration: until })}`;
  }

  async #address(signal?: AbortSignal): Promise<string> {
    return this.#link.url.startsWith('unix:') ? this.#link.address(signal) : this.#link.url;
  }

  /**
   * Where a port inside is served over HTTP and WebSocket; without a token of the sandbox
   * only if its network is `public`. domain is the server's (tend serve --domain);
   * default: localhost, for programs on the server's machine that can resolve such names
   * (curl and browsers do; Node.js needs nss-myhostname). undefined: the server has no
   * port, or is elsewhere, and there is no domain.
   */
  async portUrl(port: number, options: { domain?: string; signal?: AbortSignal } = {}): Promise<string | undefined> {
    checkPort(port);
    const url = await this.#address(options.signal);
    if (!/^https?:/.test(url)) return undefined;
    const base = new URL(url);
    if (!options.domain && !/^(localhost|127\..*|\[::1\])$/.test(base.hostname)) return undefined;
    base.hostname = `${port}-${this.id}.${options.domain ?? 'localhost'}`;
    return base.origin;
  }
}

/** The longest that a signed URL is good for, in ms. */
const maxSigned = 7 * 24 * 3_600_000;

function checkPort(port: number): void {
  if (!Number.isInteger(port) || port < 1 || port > 65535) throw new InvalidError('port', `is ${port}; 1 to 65535 are ports`);
}

function unless(...codes: Parameters<typeof hasCode>[1][]): (err: unknown) => void {
  return (err) => {
    if (!hasCode(err, ...codes)) throw err;
  };
}
