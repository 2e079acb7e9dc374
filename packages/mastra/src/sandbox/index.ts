// A sandbox on a tend daemon.

import { createHash, randomBytes } from 'node:crypto';
import path from 'node:path';
import type { RequestContext } from '@mastra/core/di';
import {
  MastraSandbox,
  type MastraSandboxOptions,
  type ProviderStatus,
  type SandboxFileInput,
  type SandboxInfo,
  type SandboxNetworking,
  type SandboxStartOptions,
  type SandboxStartResult,
  type WriteFilesOptions,
} from '@mastra/core/workspace';
import { Client, InvalidError, TendError } from '@tend/client';
import { TendProcessManager, type Place } from './process-manager.js';

/** How far commands are kept from the machine of the daemon. */
export type TendIsolation = 'none' | 'full';

export interface TendSandboxOptions extends Omit<MastraSandboxOptions, 'processes'> {
  /** Names the sandbox: whoever gives the same id to the same daemon gets the same processes and files. Default: a fresh one. */
  id?: string;
  /** http://HOST:PORT, https://HOST or unix:///PATH. Default: TEND_URL, else the daemon of the current user. */
  url?: string;
  /** Of a daemon with a token. Default: none with a url, else TEND_TOKEN. */
  token?: string;
  /**
   * `none` (default): commands run on the daemon's machine with all rights of
   * `user`, as with Mastra's LocalSandbox. `full`: in a sandbox of their own; start
   * rejects if the daemon has none.
   */
  isolation?: TendIsolation;
  /** Whom commands run as: a name, "uid" or "uid:gid". Default: the user of the daemon. */
  user?: string;
  /** Replaces the default instructions for agents, or makes others of them. */
  instructions?: string | ((options: { defaultInstructions: string; requestContext?: RequestContext }) => string);
}

/**
 * A Mastra sandbox whose processes belong to a tend daemon: they outlive this
 * program, and any program that gives the same id finds them, with their output
 * from the first byte.
 */
export class TendSandbox extends MastraSandbox {
  readonly id: string;
  readonly name = 'TendSandbox';
  readonly provider = 'tend';
  status: ProviderStatus = 'pending';
  declare readonly processes: TendProcessManager;
  /** Runs a command to its end. The base class makes it of spawn and wait. */
  declare executeCommand: NonNullable<MastraSandbox['executeCommand']>;
  override readonly networking: SandboxNetworking = { getPortUrl: (port) => this.#portUrl(port) };

  readonly #options: TendSandboxOptions;
  readonly #isolation: TendIsolation;
  #client?: Client;
  #place?: Place;
  /** Made by this class, and so removed by destroy. */
  #made?: string;
  #stopping?: Promise<void>;
  #destroying?: Promise<void>;
  #createdAt = new Date();
  #lastUsedAt?: Date;

  constructor(options: TendSandboxOptions = {}) {
    // A relative path is one of this program, as with LocalSandbox.
    const workingDirectory = options.workingDirectory === undefined ? undefined : path.resolve(options.workingDirectory);
    super({ ...options, workingDirectory, name: 'TendSandbox', processes: new TendProcessManager() } as ConstructorParameters<typeof MastraSandbox>[0]);
    this.id = options.id ?? `tend-sandbox-${Date.now().toString(36)}-${randomBytes(4).toString('hex')}`;
    this.#options = options;
    this.#isolation = options.isolation ?? 'none';
    if (this.#isolation !== 'none' && this.#isolation !== 'full') throw new InvalidError('isolation', `is ${JSON.stringify(options.isolation)}; 'none' and 'full' are known`);
  }

  // --- life ---

  override async start(options: SandboxStartOptions = {}): Promise<SandboxStartResult> {
    if (this.#isolation === 'full') throw new TendError('unsupported', "isolation 'full' is not there yet: this version knows 'none' alone, with which commands run on the daemon's machine itself");
    const client = await this.#connect(options.abortSignal);
    const wanted = this.#options.workingDirectory === undefined ? await this.#ownDirectory(client) : this.workingDirectory!;
    const made = await client.run({ shell: makeDirectory, env: { DIR: wanted }, dir: '/', user: this.#options.user }, { signal: options.abortSignal });
    const [outcome, directory] = made.stdout.toString().split('\n');
    if (!made.success || (outcome !== 'created' && outcome !== 'connected') || !directory) {
      throw new Error(`the working directory ${wanted} of the sandbox cannot be used: ${made.stderr.toString().trim() || `status ${made.exitCode}`}`);
    }
    if (this.#options.workingDirectory === undefined) this.#made = directory;
    if (this.workingDirectory === undefined) this.setWorkingDirectory(directory);
    this.#place = {
      client,
      user: this.#options.user,
      labels: { 'mastra.sandbox': this.id },
      onCallbackError: (err) => this.logger.error('A callback for the output of a process threw', { sandbox: this.id, error: err }),
    };
    this.#createdAt = new Date();
    return { outcome };
  }

  /** Ends all processes of the sandbox. Its files stay, and it can be started again. */
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
    if (place) await this.processes.killAll(place);
    if (!forGood) return;
    if (place) {
      await this.processes.forgetAll(place);
      if (this.#made) await place.client.run({ argv: ['rm', '-rf', '--', this.#made], dir: '/', user: place.user });
    }
    this.#place = undefined;
    this.#client?.close();
    this.#client = undefined;
  }

  /**
   * Ends this program's connections, and nothing else: processes and files stay,
   * and handles made before tell nothing more. The next use connects again.
   */
  async detach(): Promise<void> {
    if (this.status !== 'running') return;
    this.status = 'stopped';
    this.processes.forget();
    this.#place = undefined;
    this.#client?.close();
    this.#client = undefined;
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

  // --- what it is ---

  override async getInfo(): Promise<SandboxInfo> {
    return {
      id: this.id,
      name: this.name,
      provider: this.provider,
      status: this.status,
      createdAt: this.#createdAt,
      lastUsedAt: this.#lastUsedAt,
      metadata: { isolation: this.#isolation, url: this.#client?.url ?? this.#options.url, workingDirectory: this.workingDirectory, version: this.#client?.server.version },
    };
  }

  override getInstructions(options?: { requestContext?: RequestContext }): string {
    const { instructions } = this.#options;
    if (typeof instructions === 'string') return instructions;
    const where = this.workingDirectory === undefined ? 'a directory of its own' : `"${this.workingDirectory}"`;
    const defaultInstructions = `Commands run by /bin/sh in ${where}. A background process runs on until it is killed, also when you are not connected; its output can be read from the beginning at any time.`;
    return instructions ? instructions({ defaultInstructions, requestContext: options?.requestContext }) : defaultInstructions;
  }

  async #portUrl(port: number): Promise<string | null> {
    if (!Number.isInteger(port) || port < 1 || port > 65535) throw new InvalidError('port', `is ${port}; 1 to 65535 are ports`);
    if (!this.#place) return null;
    const { url } = this.#place.client;
    // The machine of the daemon is the machine of its processes.
    const host = url.startsWith('unix:') ? 'localhost' : new URL(url).hostname;
    return `http://${host}:${port}`;
  }

  // --- files ---

  /** Writes files, each whole or not at all. Directories are made. Paths are relative to the working directory. */
  override async writeFiles(files: SandboxFileInput[], options: WriteFilesOptions = {}): Promise<void> {
    for (const { path: name, mode } of files) {
      if (!name || name.endsWith('/')) throw new InvalidError('path', `is ${JSON.stringify(name)}, which names no file`);
      if (mode !== undefined && (!Number.isInteger(mode) || mode < 0o001 || mode > 0o777)) throw new InvalidError('mode', `of ${name} is ${mode}; 0o001 to 0o777 are allowed`);
    }
    await this.ensureRunning();
    const { client, user } = this.place;
    for (const file of files) {
      if (options.abortSignal?.aborted) throw aborted(options.abortSignal);
      const target = path.posix.resolve(this.workingDirectory!, file.path);
      const argv = ['/bin/sh', '-c', writeFile, 'sh', target, (file.mode ?? 0o644).toString(8)];
      const content = typeof file.content === 'string' ? Buffer.from(file.content) : file.content;
      const written = await client.run({ argv, dir: '/', user }, { input: content, signal: options.abortSignal });
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

  /** Its own below the daemon's; a user who is not the daemon's has it at home. */
  async #ownDirectory(client: Client): Promise<string> {
    const name = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$/.test(this.id) ? this.id : createHash('sha256').update(this.id).digest('hex').slice(0, 40);
    if (this.#options.user === undefined) return path.posix.join((await client.status()).stateDir, 'mastra', name);
    const home = await client.run({ shell: 'printf %s "$HOME"', dir: '/', user: this.#options.user });
    return path.posix.join(home.stdout.toString() || '/', '.tend-sandboxes', name);
  }
}

// Says whether it was there, and what it is called.
const makeDirectory = 'if [ -d "$DIR" ]; then echo connected; else mkdir -p -- "$DIR" && echo created || exit 1; fi; cd -- "$DIR" && pwd';

// All of it comes before the name: a reader never sees half of a file.
const writeFile = `[ ! -d "$1" ] || { echo "it is a directory" >&2; exit 1; }
d=$(dirname -- "$1") && mkdir -p -- "$d" && t=$(mktemp -- "$1.XXXXXX") || exit 1
trap 'rm -f -- "$t"' EXIT
cat >"$t" && chmod -- "$2" "$t" && mv -f -- "$t" "$1"`;

/** What Mastra's sandboxes reject with when they are aborted. */
function aborted(signal: AbortSignal): Error {
  return Object.assign(new Error('the write of files was aborted', { cause: signal.reason }), { name: 'SandboxAbortError', code: 'ABORTED' });
}

