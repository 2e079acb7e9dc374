// The processes of one sandbox. The daemon has them; nothing but handles is kept
// here, so that any client of the sandbox sees the same.

import path from 'node:path';
import { SandboxProcessManager, type ProcessInfo, type SpawnProcessOptions } from '@mastra/core/workspace';
import { hasCode, shellStatus, type Info, type Processes } from '@tend/client';
import type { TendSandbox } from './index.js';
import { TendProcessHandle } from './process-handle.js';

/** The place of the processes of a running sandbox. @internal */
export interface Place {
  /** Of the machine, or of a sandbox of their own. */
  all: Processes;
  user?: string;
  /** The label of all processes of the sandbox, and of no other process. */
  labels: Record<string, string>;
  onCallbackError: (err: unknown) => void;
}

/** How many processes are ended or forgotten at once. */
const atOnce = 16;

export class TendProcessManager extends SandboxProcessManager<TendSandbox> {
  // Spawn, list and get are methods: the base class wraps them.

  /** The ids of the processes in _dismissed: other processes may get their pids. */
  readonly #dismissed = new Set<string>();
  readonly #forgetting = new Set<Promise<void>>();
  readonly #attaching = new Map<string, Promise<TendProcessHandle | undefined>>();

  override async spawn(command: string, options: SpawnProcessOptions = {}): Promise<TendProcessHandle> {
    const { timeout } = options;
    if (timeout !== undefined && (Number.isNaN(timeout) || timeout < 0)) throw new RangeError(`timeout is ${timeout}; it is a number of milliseconds`);
    const handle = await this.sandbox.inPlace(async (place) => {
      const process = await place.all.start({
        shell: command || ':',
        env: { ...this.env, ...options.env },
        dir: path.posix.resolve(this.sandbox.workingDirectory!, options.cwd ?? ''),
        user: place.user,
        stdin: options.stdinMode === 'ignore' ? 'null' : 'pipe',
        timeout: timeout === Infinity ? undefined : timeout,
        labels: place.labels,
      });
      return new TendProcessHandle(process, { ...options, onCallbackError: place.onCallbackError });
    });
    handle.command = command;
    this._tracked.set(handle.pid, handle);
    return handle;
  }

  override async list(): Promise<ProcessInfo[]> {
    const byPid = new Map<string, ProcessInfo>();
    for (const info of await this.#infos()) {
      const pid = String(info.pid);
      byPid.set(pid, {
        pid,
        command: this.#command(info),
        running: !info.exit,
        ...(info.exit ? { exitCode: shellStatus(info.exit) } : {}),
      });
    }
    return [...byPid.values()];
  }

  override async get(pid: string): Promise<TendProcessHandle | undefined> {
    const handle = (this._tracked.get(pid) as TendProcessHandle | undefined) ?? (await this.#found(pid));
    // The base class dismisses it then.
    if (handle?.exitCode !== undefined) this.#dismissed.add(handle.id);
    return handle;
  }

  /** Forgets a process that has ended, here and at the daemon. */
  override release(pid: string): void {
    const handle = this._tracked.get(pid);
    super.release(pid);
    if (!(handle instanceof TendProcessHandle)) return;
    this.#dismissed.add(handle.id);
    const place = this.sandbox.placeIfAny;
    if (!place) return; // it was destroyed meanwhile
    const forgetting = this.#forget(place, handle.id).finally(() => this.#forgetting.delete(forgetting));
    this.#forgetting.add(forgetting);
  }

  /** Ends all processes of the sandbox, whoever started them. @internal */
  async killAll(place: Place): Promise<void> {
    // One that was being started while the others ended is in the next list.
    for (let round = 0; round < 10; round++) {
      const live = (await place.all.list({ labels: place.labels })).filter((i) => !i.exit || !i.treeGone);
      if (live.length === 0) return;
      await each(live, async (info) => {
        await place.all.attach(info).kill().catch(unless('not_found'));
      });
    }
    throw new Error('processes of the sandbox do not end, or something starts them again and again');
  }

  /** Forgets all processes of the sandbox. They have ended. @internal */
  async forgetAll(place: Place): Promise<void> {
    await this.settled();
    await each(await place.all.list({ labels: place.labels }), (info) => this.#forget(place, info.id));
    this._tracked.clear();
  }

  /** Delivers the last output of ended processes to those who wait for it here. @internal */
  async settled(): Promise<void> {
    await each([...this._tracked.values()], (handle) => handle.wait().then(() => {}, () => {}));
    await Promise.all(this.#forgetting);
  }

  /** Forgets the handles, but nothing at the daemon. From now on a pid may belong to another process. @internal */
  forget(): void {
    this._tracked.clear();
    this._dismissed.clear();
  }

  /** One handle for all concurrent calls. */
  #found(pid: string): Promise<TendProcessHandle | undefined> {
    let attaching = this.#attaching.get(pid);
    if (!attaching) {
      attaching = this.#attach(pid).finally(() => this.#attaching.delete(pid));
      this.#attaching.set(pid, attaching);
    }
    return attaching;
  }

  async #attach(pid: string): Promise<TendProcessHandle | undefined> {
    if (!/^[1-9][0-9]{0,9}$/.test(pid)) return undefined;
    const info = (await this.#infos()).findLast((i) => String(i.pid) === pid);
    if (!info) return undefined;
    const { place } = this.sandbox;
    const handle = new TendProcessHandle(place.all.attach(info), { onCallbackError: place.onCallbackError });
    handle.command = this.#command(info);
    await handle.caughtUp(info);
    this._tracked.set(pid, handle);
    return handle;
  }

  async #infos(): Promise<Info[]> {
    // The daemon may forget one while its answer, which still has it, is on the way.
    const before = new Set(this.#dismissed);
    const infos = await this.sandbox.inPlace(({ all, labels }) => all.list({ labels }));
    return infos.filter((info) => {
      if (before.has(info.id) || this.#dismissed.has(info.id)) return false;
      this._dismissed.delete(String(info.pid)); // of another process
      return true;
    });
  }

  #command(info: Info): string | undefined {
    const tracked = this._tracked.get(String(info.pid));
    return tracked instanceof TendProcessHandle && tracked.id === info.id ? tracked.command : info.spec.shell;
  }

  async #forget(place: Place, id: string): Promise<void> {
    try {
      await (await place.all.get({ id })).remove();
      this.#dismissed.delete(id); // nothing tells of it any more
    } catch {
      // A descendant lives: the sandbox's end ends it. Else the daemon forgets it in time.
    }
  }
}

function unless(...codes: Parameters<typeof hasCode>[1][]): (err: unknown) => void {
  return (err) => {
    if (!hasCode(err, ...codes)) throw err;
  };
}

/** Runs f for all, some at once. The first error is thrown when all have been tried. */
async function each<T>(all: T[], f: (one: T) => Promise<void>): Promise<void> {
  const left = [...all];
  const errors: unknown[] = [];
  await Promise.all(
    Array.from({ length: Math.min(atOnce, left.length) }, async () => {
      for (let one = left.shift(); one !== undefined; one = left.shift()) await f(one).catch((err: unknown) => errors.push(err));
    }),
  );
  if (errors.length > 0) throw errors[0];
}
