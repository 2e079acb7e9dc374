// Services: programs that are kept running as a tend.yaml declares them.

import { currentDir } from '#platform';
import { ServicePhase, ServiceService, type ServiceStatus, type WatchServicesResponse } from './gen/tend/v1/service_pb.js';
import { clean } from './errors.js';
import type { Link } from './link.js';
import { fromExit, text, textMap } from './messages.js';
import { ConnectionError } from './transport.js';
import type { Exit } from './types.js';

const phases = {
  [ServicePhase.UNSPECIFIED]: 'unknown',
  [ServicePhase.IDLE]: 'idle',
  [ServicePhase.WAITING]: 'waiting',
  [ServicePhase.STARTING]: 'starting',
  [ServicePhase.RUNNING]: 'running',
  [ServicePhase.STOPPING]: 'stopping',
  [ServicePhase.KILLING]: 'killing',
  [ServicePhase.PAUSING]: 'pausing',
  [ServicePhase.COMPLETED]: 'completed',
  [ServicePhase.FAILED]: 'failed',
} as const;

/** How a service is at one moment. */
export interface Service {
  name: string;
  phase: 'unknown' | 'idle' | 'waiting' | 'starting' | 'running' | 'stopping' | 'killing' | 'pausing' | 'completed' | 'failed';
  /** Somebody wants it to run. */
  up: boolean;
  /** It runs, and its probes say that it can be used. */
  ready: boolean;
  /** Why it is in this phase; may be empty. */
  why: string;
  /** The id of its newest run; empty: there was none. */
  process: string;
  /** While it may live; 0: none. */
  pid: number;
  /** How often it was started, and how often of that by itself. */
  runs: number;
  restarts: number;
  /** How the newest run that ended did. */
  exit?: Exit;
  /** The sandbox that it runs in; empty: the machine. */
  sandbox: string;
  /** The newest run is a process that tend did not start: there is no output of it, and its exit status will not be known. */
  adopted: boolean;
  /** By which rule of the file it was found; undefined: somebody has named its pid, it is not adopted, or a former version has adopted it. */
  adoptedBy?: { pidFile: string } | { port: number };
  /** The project that declares it; the name begins with it and a '/', except in one project. */
  project: string;
}

function fromService(m: ServiceStatus): Service {
  return {
    name: clean(m.name),
    phase: phases[m.phase] ?? 'unknown',
    up: m.up,
    ready: m.ready,
    why: clean(m.why),
    process: m.process,
    pid: m.pid,
    runs: Number(m.run),
    restarts: Number(m.restarts),
    exit: m.exit && fromExit(m.exit),
    sandbox: clean(m.sandbox),
    adopted: m.adopted,
    adoptedBy: m.adoptedBy.case === 'adoptedPidFile' ? { pidFile: clean(m.adoptedBy.value) } : m.adoptedBy.case === 'adoptedPort' ? { port: m.adoptedBy.value } : undefined,
    project: clean(m.project),
  };
}

const names = (all: string[]) => ({ names: all.map((n) => text('names', n)) });

/** The services of the daemon. `not_found`: a name is not declared. */
export class Services {
  readonly #link: Link;

  /** @internal Made by Client. */
  constructor(link: Link) {
    this.#link = link;
  }

  #needed(signal?: AbortSignal): Promise<void> {
    return this.#link.needs('services', 'services', signal);
  }

  /**
   * Declares the services of a tend.yaml. What differs from before is changed, and
   * nothing else. dir: absolute, what relative paths in it are below; default: the
   * current one; a browser has none. env: for services that inherit the environment of whoever applies.
   * envFiles: what env_file names in it, with the contents.
   */
  async apply(file: string, options: { dir?: string; name?: string; env?: Record<string, string | undefined>; envFiles?: Record<string, Uint8Array>; signal?: AbortSignal } = {}): Promise<void> {
    await this.#needed(options.signal);
    const request = { text: new TextEncoder().encode(text('file', file)), name: options.name ?? 'tend.yaml', dir: options.dir ?? currentDir(), env: textMap('env', options.env), envFiles: options.envFiles };
    await this.#link.call(ServiceService.method.apply, request, { signal: options.signal });
  }

  /** Asks for services, and for those that they depend on; none: for all that are not disabled. It resolves when that is written down. */
  async start(...all: string[]): Promise<void> {
    await this.#needed();
    await this.#link.call(ServiceService.method.start, names(all));
  }

  /** Ends services, those that depend on them first; none: all. */
  async stop(...all: string[]): Promise<void> {
    await this.#needed();
    await this.#link.call(ServiceService.method.stop, names(all));
  }

  /** Ends services and starts them again. It is not repeated when the answer is lost. */
  async restart(...all: string[]): Promise<void> {
    await this.#needed();
    await this.#link.once(ServiceService.method.restart, names(all));
  }

  /** All services, each after those that it depends on. */
  async list(signal?: AbortSignal): Promise<Service[]> {
    await this.#needed(signal);
    return (await this.#link.call(ServiceService.method.list, {}, { signal })).services.map(fromService);
  }

  /** All services, and again after changes; changes that follow each other closely come together. */
  async *watch(signal?: AbortSignal): AsyncGenerator<Service[], void, void> {
    await this.#needed(signal);
    const open = (s: AbortSignal) => this.#link.connect.stream(ServiceService.method.watch, {}, { signal: s });
    const take = (m: WatchServicesResponse): { value?: Service[]; progress: boolean } => {
      if (m.goingAway) throw ConnectionError.of('away', 'the server went away again and again');
      return { value: m.heartbeat ? undefined : m.services.map(fromService), progress: true };
    };
    yield* this.#link.follow(open, take, () => false, signal);
  }
}
