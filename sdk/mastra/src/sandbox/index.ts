// A sandbox on a tend daemon.

import { createHash, randomBytes } from 'node:crypto';
import path from 'node:path';
import type { RequestContext } from '@mastra/core/di';
import {
  MastraSandbox,
  type MastraSandboxOptions,
  type ProviderStatus,
  type SandboxCloneOptions,
  type SandboxFileInput,
  type SandboxInfo,
  type SandboxNetworking,
  type SandboxStartOptions,
  type SandboxStartResult,
  type WriteFilesOptions,
} from '@mastra/core/workspace';
import { Client, hasCode, InvalidError, Sandbox, TendError, type SandboxNetwork, type SandboxShare, type SandboxSize, type SandboxSnapshot } from '@tend/client';
import { TendProcessManager, type Place } from './process-manager.js';

/** How far commands are isolated from the daemon's machine. */
export type TendIsolation = 'none' | 'full';

/** Options of an isolated sandbox: only with `isolation: 'full'`. */
export interface TendIsolationOptions {
  /** Directories and files of the daemon's machine that are visible inside. */
  share?: SandboxShare[];
  /** What it can reach, and whether its ports can be reached. */
  network?: SandboxNetwork;
  /** What it may use: `cpus`, `memory` and `disk` in bytes, `tasks`. */
  limits?: SandboxSize;
  /** A template of the daemon. Default: the machine's own programs. */
  template?: string;
  /** Milliseconds after the last start until onTimeout happens. Default: never. */
  timeout?: number;
  /** `pause` (default): the next use resumes it; `destroy`. */
  onTimeout?: 'pause' | 'destroy';
  /** Milliseconds without use and processes after which it is stopped; its files stay. Default: never. */
  idleTimeout?: number;
  /** Attaches to the sandbox with this tend id, instead of the one of `id`. */
  sandboxId?: string;
  /** The name of the checkpoint that snapshot() stores and from which the sandbox is created. Default for snapshot(): its id. */
  checkpointName?: string;
  /** The snapshot from which it is created if checkpointName does not exist yet. */
  seedCheckpointName?: string;
  /** The daemon's domain (tend serve --domain), for the URLs of ports. Default: localhost. */
  domain?: string;
}

export interface TendSandboxOptions extends Omit<MastraSandboxOptions, 'processes'>, TendIsolationOptions {
  /** Identifies the sandbox: every program with the same id and daemon gets the same processes and files. Default: a new one. */
  id?: string;
  /** http://HOST:PORT, https://HOST or unix:///PATH. Default: TEND_URL, else the daemon of the current user. */
  url?: string;
  /** The token of the daemon. Default: none with a url, else TEND_TOKEN. */
  token?: string;
  /**
   * `none` (default): commands run on the daemon's machine with all rights of `user`, as
   * with Mastra's LocalSandbox. `full`: in an isolated sandbox, with its own files,
   * processes and network; start rejects if the daemon has none.
   */
  isolation?: TendIsolation;
  /** The user of commands: a name, "uid" or "uid:gid". Default: the daemon's user; root in an isolated sandbox. */
  user?: string;
  /** Replaces the default instructions for agents, or computes new ones from them. */
  instructions?: string | ((options: { defaultInstructions: string; requestContext?: RequestContext }) => string);
}

const isolated: (keyof TendIsolationOptions)[] = [
  'share', 'network', 'limits', 'template', 'timeout', 'onTimeout', 'idleTimeout', 'sandboxId', 'checkpointName', 'seedCheckpointName', 'domain',
];

/**
 * A Mastra sandbox whose processes belong to a tend daemon: they outlive this program, and
 * any program with the same id finds them, with their output from the first byte.
 */
export class TendSandbox extends MastraSandbox {
  readonly id: string;
  readonly name = 'TendSandbox';
  readonly provider = 'tend';
  status: ProviderStatus = 'pending';
  declare readonly processes: TendProcessManager;
  /** Runs a command to its end. The base class implements it with spawn and wait. */
  declare executeCommand: NonNullable<MastraSandbox['executeCommand']>;
  /** Whether snapshot() stores something. */
  override readonly supportsCheckpoints: boolean;
  override readonly networking: SandboxNetworking = { getPortUrl: (port) => this.#portUrl(port) };

  readonly #options: TendSandboxOptions;
  readonly #isolation: TendIsolation;
  #client?: Client;
  #place?: Place;
  /** Created by this class, and so removed by destroy. */
  #made?: string;
  /** With `isolation: 'full'`, once it was created or found. */
  #box?: Sandbox;
  #stopping?: Promise<void>;
  #destroying?: Promise<void>;
  #createdAt = new Date();
  #lastUsedAt?: Date;

  constructor(options: TendSandboxOptions = {}) {
    const isolation = options.isolation ?? (options.sandboxId === undefined ? 'none' : 'full');
    // A relative path is one of this program, as with LocalSandbox; its paths mean nothing in another place.
    const { workingDirectory: dir } = options;
    const workingDirectory = dir === undefined || isolation === 'full' ? dir : path.resolve(dir);
    super({ ...options, workingDirectory, name: 'TendSandbox', processes: new TendProcessManager() } as ConstructorParameters<typeof MastraSandbox>[0]);
    this.id = options.id ?? `tend-sandbox-${Date.now().toString(36)}-${randomBytes(4).toString('hex')}`;
    this.#options = options;
    this.#isolation = isolation;
    this.supportsCheckpoints = isolation === 'full';
    if (isolation !== 'none' && isolation !== 'full') throw new InvalidError('isolation', `is ${JSON.stringify(isolation)}; 'none' and 'full' are known`);
    if (isolation === 'full' && dir !== undefined && !path.posix.isAbsolute(dir)) throw new InvalidError('workingDirectory', `is ${JSON.stringify(dir)}; with isolation 'full' it is absolute, as it is seen inside`);
    const wrong = isolated.find((name) => options[name] !== undefined);
    if (isolation === 'none' && wrong !== undefined) throw new InvalidError(wrong, "needs isolation: 'full'; without it commands run on the daemon's machine itself");
  }

  // --- life ---

  override async start(options: SandboxStartOptions = {}): Promise<SandboxStartResult> {
    const client = await this.#connect(options.abortSignal);
    const box = this.#isolation === 'full' ? await this.#open(client, options.abortSignal) : undefined;
    const all = box?.sandbox.processes ?? client;
    const wanted = this.#options.workingDirectory ?? (await this.#ownDirectory(client, box?.sandbox));
    const made = await all.run({ shell: makeDirectory, env: { DIR: wanted }, dir: '/', user: this.#options.user }, { signal: options.abortSignal });
    const [found, directory] = made.stdout.toString().split('\n');
    if (!made.success || (found !== 'created' && found !== 'connected') || !directory) {
      throw new Error(`the working directory ${wanted} of the sandbox cannot be used: ${made.stderr.toString().trim() || `status ${made.exitCode}`}`);
    }
    if (this.#options.workingDirectory === undefined && !box) this.#made = directory;
    if (this.workingDirectory === undefined) this.setWorkingDirectory(directory);
    // In a sandbox that begins again, or is another one, old pids mean nothing.
    if (box) this.processes.forget();
    this.#box = box?.sandbox;
    this.#place = {
      all,
      user: this.#options.user,
      labels: { 'mastra.sandbox': this.id },
      onCallbackError: (err) => this.logger.error('A callback for the output of a process threw', { sandbox: this.id, error: err }),
    };
    this.#createdAt = box?.sandbox.info.created ?? new Date();
    return { outcome: box ? (box.created ? 'created' : 'connected') : found };
  }

  /** Finds the isolated sandbox, or creates it. */
  async #open(client: Client, signal?: AbortSignal): Promise<{ sandbox: Sandbox; created: boolean }> {
    const o = this.#options;
    const checked = (sandbox: Sandbox): Sandbox => {
      if (sandbox.info.isolation !== 'full') throw new TendError('unsupported', `the sandbox ${sandbox.info.name} is not isolated from the machine`);
      return sandbox;
    };
    if (o.sandboxId !== undefined) {
      const sandbox = checked(await client.sandbox(o.sandboxId, signal));
      if (sandbox.info.state !== 'ready') await sandbox.start(signal);
      await this.#extend(sandbox, signal);
      return { sandbox, created: false };
    }
    const name = `mastra-${safeName(this.id)}`;
    const opened = await client.openSandbox(
      {
        name,
        isolation: 'full',
        user: o.user,
        shares: o.share,
        network: o.network,
        size: o.limits,
        template: o.template,
        snapshot: await this.#checkpoint(client, signal),
        timeout: o.timeout,
        atTimeout: o.onTimeout ?? 'pause',
        wake: true,
        idleTtl: o.idleTimeout,
        metadata: { [idEntry]: this.id },
      },
      signal,
    );
    if (checked(opened.sandbox).info.metadata[idEntry] !== this.id) throw new TendError('exists', `the daemon has a sandbox ${name} that is not of this id`);
    if (!opened.created) await this.#extend(opened.sandbox, signal);
    return opened;
  }

  async #extend(sandbox: Sandbox, signal?: AbortSignal): Promise<void> {
    if (this.#options.timeout) await sandbox.update({ extend: this.#options.timeout }, signal);
  }

  /** Ends all processes of the sandbox. Its files stay, and the next use starts it again. */
  override async stop(): Promise<void> {
    if (this.status !== 'stopping') return this._stop(); // which calls this, and keeps the status
    this.#stopping ??= this.#end(false).finally(() => (this.#stopping = undefined));
    return this.#stopping;
  }

  /** Ends and forgets all processes, and removes the directory if it is the sandbox's own. */
  override async destroy(): Promise<void> {
    if (this.status !== 'destroying') return this._destroy();
    this.#destroying ??= this.#end(true).finally(() => (this.#destroying = undefined));
    return this.#destroying;
  }

  async #end(forGood: boolean): Promise<void> {
    const place = this.#place;
    if (this.#box) {
      await (forGood ? this.#box.destroy() : this.#box.stop().catch(unlessGone));
      await this.processes.settled();
    } else if (place) {
      await this.processes.killAll(place);
      if (forGood) {
        await this.processes.forgetAll(place);
        if (this.#made) await place.all.run({ argv: ['rm', '-rf', '--', this.#made], dir: '/', user: place.user });
      }
    }
    if (!forGood) return;
    this.#place = undefined;
    this.#box = undefined;
    this.#client?.close();
    this.#client = undefined;
  }

  /**
   * Only ends this program's connections: processes and files stay, and existing handles
   * report nothing more. The next use connects again.
   */
  async detach(): Promise<void> {
    if (this.status !== 'running') return;
    this.status = 'stopped';
    this.processes.forget();
    this.#place = undefined;
    this.#box = undefined;
    this.#client?.close();
    this.#client = undefined;
  }

  /**
   * Suspends all processes of an isolated sandbox, with their memory. The next use of the
   * sandbox, or this object's start, resumes them.
   */
  async pause(): Promise<void> {
    this.#needsBox('pause');
    if (this.status !== 'running') return;
    await this.#box!.pause();
    this.status = 'stopped';
  }

  // --- copies ---

  /**
   * Stores the files of an isolated sandbox as the checkpoint `checkpointName`, replacing
   * the one before. Without isolation it does nothing.
   */
  override async snapshot(): Promise<void> {
    if (this.#isolation !== 'full') return;
    await this.ensureRunning();
    const prefix = checkpointPrefix(this.#options.checkpointName ?? this.id);
    const kept = await this.#box!.snapshot(prefix + newSuffix());
    // Those before are not needed any more; sandboxes that began with one hold it.
    for (const old of await checkpoints(this.#client!, prefix)) {
      if (old.id !== kept.id && (old.created?.getTime() ?? 0) <= (kept.created?.getTime() ?? 0)) await this.#client!.deleteSnapshot(old.id).catch(unlessInUse);
    }
  }

  /**
   * A sandbox object with this one's options, for a sandbox with another id. It does
   * nothing before its start. Its files are those of its checkpoint, if one is named.
   */
  clone(options: SandboxCloneOptions = {}): TendSandbox {
    const { id: _id, sandboxId: _sandboxId, ...mine } = this.#options;
    const o: TendSandboxOptions = { ...mine };
    if (options.id !== undefined) o.id = options.id;
    if (options.env !== undefined) o.env = { ...mine.env, ...options.env };
    if (options.workingDirectory !== undefined) o.workingDirectory = options.workingDirectory;
    if (this.#isolation === 'full') {
      o.isolation = 'full';
      if (options.sandboxId !== undefined) o.sandboxId = options.sandboxId;
      if (options.idleTimeoutMinutes !== undefined) o.idleTimeout = options.idleTimeoutMinutes * 60_000;
      if (options.checkpointName !== undefined) o.checkpointName = options.checkpointName;
      if (options.seedCheckpointName !== undefined) o.seedCheckpointName = options.seedCheckpointName;
    }
    return new TendSandbox(o);
  }

  /** Creates another sandbox with the present files of this one, without its processes. */
  async fork(options: { id?: string } = {}): Promise<TendSandbox> {
    this.#needsBox('fork');
    await this.ensureRunning();
    const copy = this.clone({ id: options.id });
    // It ends by itself if this program does before the copy has its name.
    const [made] = await this.#box!.fork(1, { timeout: 120_000 });
    if (!(made instanceof Sandbox)) throw made ?? new Error('no copy was made');
    try {
      await made.update({ name: `mastra-${safeName(copy.id)}`, timeout: this.#options.timeout ?? 0, atTimeout: this.#options.onTimeout ?? 'pause', metadata: { [idEntry]: copy.id } });
    } catch (err) {
      await made.destroy().catch(() => {});
      throw err;
    }
    return copy;
  }

  #needsBox(what: string): void {
    if (this.#isolation !== 'full') throw new TendError('unsupported', `${what} needs isolation: 'full'; without it commands run on the daemon's machine itself`);
  }

  /** The snapshot from which the sandbox is created. */
  async #checkpoint(client: Client, signal?: AbortSignal): Promise<string | undefined> {
    for (const name of [this.#options.checkpointName, this.#options.seedCheckpointName]) {
      if (name === undefined) continue;
      const newest = (await checkpoints(client, checkpointPrefix(name), signal)).at(-1);
      if (newest) return newest.id;
    }
    return undefined;
  }

  /** Where its processes are. @internal */
  get place(): Place {
    if (!this.#place) throw new TendError('closed', `the sandbox ${this.id} is not running`);
    this.#lastUsedAt = new Date();
    return this.#place;
  }

  /** The same, if it runs. @internal */
  get placeIfAny(): Place | undefined {
    return this.#place;
  }

  /**
   * Runs a function in the place of its processes. An isolated sandbox that another client
   * destroyed, stopped or paused is created or started again first. @internal
   */
  async inPlace<T>(f: (place: Place) => Promise<T>): Promise<T> {
    const { place } = this;
    try {
      return await f(place);
    } catch (err) {
      if (!this.#box || !hasCode(err, 'not_found', 'sandbox_stopped', 'sandbox_paused')) throw err;
    }
    if (this.#place === place && this.status === 'running') this.status = 'stopped';
    await this.ensureRunning();
    return f(this.place);
  }

  // --- what it is ---

  override async getInfo(): Promise<SandboxInfo> {
    return {
      id: this.id,
      name: this.name,
      provider: this.provider,
      status: this.status,
      createdAt: this.#createdAt,
      lastUsedAt: this.#lastUsedAt,
      metadata: { isolation: this.#isolation, sandboxId: this.#box?.id, url: this.#client?.url ?? this.#options.url, workingDirectory: this.workingDirectory, version: this.#client?.server.version },
    };
  }

  override getInstructions(options?: { requestContext?: RequestContext }): string {
    const { instructions } = this.#options;
    if (typeof instructions === 'string') return instructions;
    const where = this.workingDirectory === undefined ? 'a directory of its own' : `"${this.workingDirectory}"`;
    const place = this.#isolation === 'full' ? ' of a sandbox, which has files, processes and a network of its own' : '';
    const defaultInstructions = `Commands run by /bin/sh in ${where}${place}. A background process runs on until it is killed, also when you are not connected; its output can be read from the beginning at any time.`;
    return instructions ? instructions({ defaultInstructions, requestContext: options?.requestContext }) : defaultInstructions;
  }

  async #portUrl(port: number): Promise<string | null> {
    if (!Number.isInteger(port) || port < 1 || port > 65535) throw new InvalidError('port', `is ${port}; 1 to 65535 are ports`);
    if (!this.#place || !this.#client) return null;
    if (this.#box) {
      if (!this.#options.network?.public) return null; // nobody would be let in
      return (await this.#box.portUrl(port, { domain: this.#options.domain })) ?? null;
    }
    const { url } = this.#client;
    // The machine of the daemon is the machine of its processes.
    const host = url.startsWith('unix:') ? 'localhost' : new URL(url).hostname;
    return `http://${host}:${port}`;
  }

  // --- files ---

  /** Writes files, each completely or not at all. Missing directories are created. Paths are relative to the working directory. */
  override async writeFiles(files: SandboxFileInput[], options: WriteFilesOptions = {}): Promise<void> {
    for (const { path: name, mode } of files) {
      if (!name || name.endsWith('/')) throw new InvalidError('path', `is ${JSON.stringify(name)}, which names no file`);
      if (mode !== undefined && (!Number.isInteger(mode) || mode < 0o001 || mode > 0o777)) throw new InvalidError('mode', `of ${name} is ${mode}; 0o001 to 0o777 are allowed`);
    }
    await this.ensureRunning();
    for (const file of files) {
      if (options.abortSignal?.aborted) throw aborted(options.abortSignal);
      const target = path.posix.resolve(this.workingDirectory!, file.path);
      const argv = ['/bin/sh', '-c', writeFile, 'sh', target, (file.mode ?? 0o644).toString(8)];
      const content = typeof file.content === 'string' ? Buffer.from(file.content) : file.content;
      const written = await this.inPlace(({ all, user }) => all.run({ argv, dir: '/', user }, { input: content, signal: options.abortSignal }));
      if (written.success) continue;
      if (options.abortSignal?.aborted) throw aborted(options.abortSignal);
      throw new Error(`${target} cannot be written: ${written.stderr.toString().trim() || `status ${written.exitCode}`}`);
    }
  }

  // ---

  async #connect(signal?: AbortSignal): Promise<Client> {
    const { url, token } = this.#options;
    return (this.#client ??= await Client.connect({ url, token, signal, log: (message) => this.logger.debug(message, { sandbox: this.id }) }));
  }

  /** A directory below the daemon's, or the home in a sandbox, or the home of a user who is not the daemon's. */
  async #ownDirectory(client: Client, box?: Sandbox): Promise<string> {
    const { user } = this.#options;
    if (user === undefined) return box ? box.info.dir : path.posix.join((await client.status()).stateDir, 'mastra', safeName(this.id));
    const home = (await (box?.processes ?? client).run({ shell: 'printf %s "$HOME"', dir: '/', user })).stdout.toString() || '/';
    return box ? home : path.posix.join(home, '.tend-sandboxes', safeName(this.id));
  }
}

/** The entry of a sandbox's metadata with its Mastra id. */
const idEntry = 'mastra.id';

/** A part of names of files, sandboxes and snapshots: the text itself, if it is valid there. */
function safeName(text: string): string {
  return /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$/.test(text) ? text : createHash('sha256').update(text).digest('hex').slice(0, 40);
}

// A checkpoint may be held by a sandbox that began with it, so each has a name of its
// own, and the newest counts.

const checkpointPrefix = (name: string): string => `mastra-checkpoint-${safeName(name).replaceAll('.', '-').slice(0, 60)}-${createHash('sha256').update(name).digest('hex').slice(0, 8)}.`;

const newSuffix = (): string => `${Date.now().toString(36)}-${randomBytes(4).toString('hex')}`;

/** The snapshots of a checkpoint, oldest first. */
async function checkpoints(client: Client, prefix: string, signal?: AbortSignal): Promise<SandboxSnapshot[]> {
  return (await client.snapshots(signal)).filter((s) => s.name.startsWith(prefix) && s.state === 'ready');
}

function unlessGone(err: unknown): void {
  if (!hasCode(err, 'not_found')) throw err;
}

function unlessInUse(err: unknown): void {
  if (!hasCode(err, 'in_use')) throw err;
}

// Says whether it was there, and what it is called.
const makeDirectory = 'if [ -d "$DIR" ]; then echo connected; else mkdir -p -- "$DIR" && echo created || exit 1; fi; cd -- "$DIR" && pwd';

// All of it comes before the name: a reader never sees half of a file.
const writeFile = `[ ! -d "$1" ] || { echo "it is a directory" >&2; exit 1; }
d=$(dirname -- "$1") && mkdir -p -- "$d" && t=$(mktemp -- "$1.XXXXXX") || exit 1
trap 'rm -f -- "$t"' EXIT
cat >"$t" && chmod -- "$2" "$t" && mv -f -- "$t" "$1"`;

/** The error of Mastra's sandboxes when they are aborted. */
function aborted(signal: AbortSignal): Error {
  return Object.assign(new Error('the write of files was aborted', { cause: signal.reason }), { name: 'SandboxAbortError', code: 'ABORTED' });
}

