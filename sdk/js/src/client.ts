// A client of one tend server.

import { hasCode, InvalidError, protocolError, TendError } from './errors.js';
import { AdminService } from './gen/tend/v1/admin_pb.js';
import { SandboxService } from './gen/tend/v1/sandbox_pb.js';
import { defaults, newTransport, type PlatformOptions } from '#platform';
import { Connect } from './connect.js';
import { Files } from './files.js';
import { Images } from './images.js';
import { Link } from './link.js';
import { text } from './messages.js';
import { randomHex } from './random.js';
import { Processes } from './processes.js';
import type { RetryOptions } from './retry.js';
import { Sandbox } from './sandbox.js';
import { fromSandbox, fromSnapshot, states, toSandboxSpec } from './sandbox-messages.js';
import type { SandboxFilter, SandboxInfo, SandboxSnapshot, SandboxSpec } from './sandbox-types.js';
import { pause, Scope } from './scope.js';
import { Services } from './services.js';
import { usage, type Usage } from './usage.js';

/** How to reach a server. The zero value is the daemon of the current user; in a browser, the server that the page came from. */
export interface ClientOptions extends PlatformOptions {
  /**
   * http://HOST:PORT, https://HOST or unix:///PATH. Default: TEND_URL, else where
   * the daemon of the current user listens, as the tend command line finds it. In a
   * browser: http or https, also a path of the page's own server; default: its origin.
   */
  url?: string;
  /** Sent with each request. Default: none with a url, else TEND_TOKEN, so that no other server receives it. */
  token?: string;
  retry?: RetryOptions;
  /** Milliseconds after which a silent server is given up. Default 45,000: three of its heartbeats. */
  silence?: number;
  /** Receives a line for each reconnect. */
  log?: (message: string) => void;
  /** Aborts connecting. */
  signal?: AbortSignal;
}

/** A connection to one tend server. Its own processes are those of the server's machine. */
export class Client extends Processes {
  readonly #link: Link;
  readonly services: Services;
  readonly images: Images;
  /** Files of the server's machine. */
  readonly files: Files;

  private constructor(link: Link) {
    super(link);
    this.#link = link;
    this.services = new Services(link);
    this.images = new Images(link);
    this.files = new Files(link);
  }

  /**
   * Connects, and sends a hello. If no program listens there, the error has the
   * code `no_daemon`. From then on lost connections are replaced.
   */
  static async connect(options: ClientOptions = {}): Promise<Client> {
    const found = options.url ? { urls: [options.url], token: undefined } : await defaults();
    let last: unknown;
    for (const url of found.urls) {
      const link = new Link(url, new Connect(newTransport(url, options.token || found.token, options)), options);
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

  /** The server's version, and its instance: a different one means that it was restarted. */
  get server(): { version: string; instance: string } {
    return { version: this.#link.version, instance: this.#link.instance };
  }

  /**
   * Creates a sandbox, and resolves when programs can run in it. If the name is taken, the
   * error has the code `exists`. It is not repeated when the answer is lost: then the
   * sandbox may exist, and is in sandboxes(). For a named sandbox use openSandbox.
   */
  async createSandbox(spec: SandboxSpec = {}, signal?: AbortSignal): Promise<Sandbox> {
    const message = toSandboxSpec(spec);
    await this.#link.needsSandboxes(signal);
    const res = await this.#link.once(SandboxService.method.create, { spec: message }, { signal });
    return new Sandbox(this.#link, fromSandbox(res.sandbox));
  }

  /**
   * Creates a sandbox, or finds the one with its name and starts it if it is not ready. It
   * is safe to repeat, and is repeated when an answer is lost. The sandbox has an entry
   * `tend.opened` in its metadata, which identifies the call that created it.
   */
  async openSandbox(spec: SandboxSpec & { name: string }, signal?: AbortSignal): Promise<{ sandbox: Sandbox; created: boolean }> {
    if (!spec.name) throw new InvalidError('name', 'is missing; a sandbox is opened by its name');
    const mark = randomHex(12);
    const message = toSandboxSpec({ ...spec, metadata: { ...spec.metadata, [opened]: mark } });
    await this.#link.needsSandboxes(signal);
    const scope = new Scope(signal, this.#link.closed.signal);
    const until = Date.now() + 60_000;
    try {
      for (let delay = 10; ; delay = Math.min(2 * delay, 500)) {
        try {
          const res = await this.#link.call(SandboxService.method.create, { spec: message }, { signal });
          return { sandbox: new Sandbox(this.#link, fromSandbox(res.sandbox)), created: true };
        } catch (err) {
          if (!hasCode(err, 'exists')) throw err;
        }
        try {
          const sandbox = await this.sandbox(spec.name, signal);
          if (sandbox.info.state !== 'ready') await sandbox.start(signal);
          // It may be of an attempt whose answer was lost.
          return { sandbox, created: sandbox.info.metadata[opened] === mark };
        } catch (err) {
          // Another one is making it, or it was destroyed in between.
          if (!hasCode(err, 'not_found') || Date.now() > until) throw err;
        }
        await pause(delay, scope.signal);
      }
    } finally {
      scope.end();
    }
  }

  /** Finds a sandbox by its id or name, in any state. */
  async sandbox(key: string, signal?: AbortSignal): Promise<Sandbox> {
    await this.#link.needsSandboxes(signal);
    const res = await this.#link.call(SandboxService.method.get, { sandbox: text('sandbox', key) }, { signal });
    return new Sandbox(this.#link, fromSandbox(res.sandbox));
  }

  /** The state of the sandboxes that the filter selects, oldest first. */
  async sandboxes(filter: SandboxFilter = {}, signal?: AbortSignal): Promise<SandboxInfo[]> {
    await this.#link.needsSandboxes(signal);
    const wanted = filter.states?.map((state) => {
      const n = states.indexOf(state);
      if (n < 0) throw new InvalidError('states', `has ${JSON.stringify(state)}; ${states.join(', ')} are known`);
      return n;
    });
    const all: SandboxInfo[] = [];
    for (let after = ''; ; ) {
      const res = await this.#link.call(SandboxService.method.list, { states: wanted, metadata: filter.metadata, after }, { signal });
      for (const m of res.sandboxes) all.push(fromSandbox(m));
      if (!res.next) return all;
      if (res.sandboxes.length === 0 || res.next === after) throw protocolError('a list that does not go on');
      after = res.next;
    }
  }

  /** All snapshots of sandboxes, oldest first. */
  async snapshots(signal?: AbortSignal): Promise<SandboxSnapshot[]> {
    await this.#link.needsSandboxes(signal);
    return (await this.#link.call(SandboxService.method.snapshots, {}, { signal })).snapshots.map(fromSnapshot);
  }

  /** Removes a snapshot by its id or name. A missing one is no error; `in_use`: sandboxes need it. */
  async deleteSnapshot(key: string, signal?: AbortSignal): Promise<void> {
    await this.#link.needsSandboxes(signal);
    await this.#link.call(SandboxService.method.deleteSnapshot, { snapshot: text('snapshot', key) }, { signal }).catch((err: unknown) => {
      if (!hasCode(err, 'not_found')) throw err;
    });
  }

  /** The daemon's status. */
  async status(signal?: AbortSignal): Promise<{ version: string; url: string; stateDir: string; roles: Record<string, number>; processes: number }> {
    const res = await this.#link.call(AdminService.method.status, {}, { signal });
    const roles: Record<string, number> = {};
    for (const [name, role] of Object.entries(res.roles)) roles[name] = Number(role.pid);
    return { version: res.version, url: res.url, stateDir: res.stateDir, roles, processes: Number(res.processes) };
  }

  /**
   * Measures what is used now, by the machine, each service and each sandbox, or by those that are named: `machine`, a service, a
   * sandbox by its id or name. It takes a second.
   */
  usage(names: string[] = [], signal?: AbortSignal): Promise<Usage[]> {
    return usage(this.#link, undefined, names, signal);
  }

  /** What was used in a time until now, in milliseconds and of at most a day: of an hour or less each minute, else each five minutes. */
  usageHistory(since: number, names: string[] = [], signal?: AbortSignal): Promise<Usage[]> {
    return usage(this.#link, since, names, signal);
  }

  /** Ends all calls, readers and connections of this client. Processes are not affected. */
  close(): void {
    this.#link.close();
  }
}

/** The entry of the metadata of sandboxes that openSandbox made. */
const opened = 'tend.opened';

/** Waits for a server that is being replaced, but not for one that does not exist. */
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
