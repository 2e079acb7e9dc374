// What processes are asked to be, and what is known of them.

import type { Bytes } from '#platform';

/** A stream of output; a terminal has `pty` alone. */
export type OutputStream = 'stdout' | 'stderr' | 'pty';

/** What a process is sent to or looked at with. */
export type Scope = 'tree' | 'leader' | 'group';

/** What to start. Each field's absence is its default. */
export interface Spec {
  /** 1 to 100 letters, digits, '.', '_', '-'. Default: a fresh one. Starting the same id with an equal spec again starts nothing. */
  id?: string;
  /** For people: up to 256 bytes. */
  name?: string;
  tag?: string;
  /** The program and its arguments; or `shell`, a line for /bin/sh -c. */
  argv?: string[];
  shell?: string;
  /** Added to what is inherited; undefined values are left out. */
  env?: Record<string, string | undefined>;
  /** `user` (default): PATH of the daemon, HOME, USER and LOGNAME of the user. */
  inherit?: 'user' | 'daemon' | 'none';
  /** Absolute. Default: the user's home. */
  dir?: string;
  /** Another name of dir; one of them is given. */
  cwd?: string;
  /** A name, "uid" or "uid:gid". Default: the user tend runs as. */
  user?: string;
  /** `null` (default) reads end of file at once; `pipe` is fed by write. */
  stdin?: 'null' | 'pipe';
  /** A terminal of this size instead of pipes. */
  pty?: { cols: number; rows: number };
  /** Milliseconds after which the process is ended: TERM, then KILL. */
  timeout?: number;
  timeoutScope?: Scope;
  limits?: {
    rlimits?: { resource: number; soft: bigint; hard: bigint }[];
    nice?: number;
    oomScoreAdj?: number;
    /** Bytes, for the tree. */
    memoryMax?: number;
    /** Tasks, for the tree. */
    pidsMax?: number;
    /** 1 to 10,000. */
    cpuWeight?: number;
    /** How many processors the tree may use at most; 0.5 is half of one. */
    cpus?: number;
  };
  retention?: {
    /** Bytes kept of each output stream. Default: the server's. */
    limit?: number;
    policy?: 'dropOldest' | 'block';
    /** Milliseconds that a finished process is kept. Default: the server's. */
    ttl?: number;
    pin?: boolean;
  };
  /** Milliseconds without a reader after which the process is killed. */
  killWithoutReaders?: number;
  labels?: Record<string, string>;
  /**
   * A line of the shell that runs when the process has ended, as its user, in its directory and
   * environment, with TEND_EXIT_STATUS and others set: at least once, whoever of tend dies, and
   * whether this program still runs or not. The process is kept until then. Of `start` alone, and
   * for processes of the machine, not for those of a sandbox.
   */
  onExit?: string;
  /** http or https: it is sent the same facts as JSON, again and again until it takes them, for a day. */
  onExitUrl?: string;
}

/** How a process ended: the kernel's word. */
export interface Exit {
  code: number;
  /** The signal's number; 0: none. */
  signal: number;
  coreDumped: boolean;
  cause: 'exited' | 'signalled' | 'timeout' | 'oom' | 'shutdown' | 'killed' | 'no_readers' | 'lost';
  time?: Date;
  /** Milliseconds. */
  userTime: number;
  systemTime: number;
  /** Bytes. */
  maxRss: number;
  /** Nobody witnessed the end, and no status is known. */
  lost: boolean;
}

/** The status that a shell shows: the code, 128+signal, 124 for a timeout, -1 if it is not known. */
export function shellStatus(exit: Exit): number {
  if (exit.lost) return -1;
  if (exit.cause === 'timeout') return 124;
  return exit.signal ? 128 + exit.signal : exit.code;
}

/** Bytes from base to end can be read. */
export interface StreamInfo {
  stream: OutputStream;
  base: number;
  end: number;
  eof: boolean;
}

/** What is known of a process at one moment. */
export interface Info {
  id: string;
  pid: number;
  spec: Spec;
  state: 'running' | 'stopped' | 'exited';
  started?: Date;
  exit?: Exit;
  /** No descendant is left. */
  treeGone: boolean;
  streams: StreamInfo[];
  stdin: { open: boolean; accepted: number };
  pinned: boolean;
  /** Room was needed: spec lacks its environment, large labels and most of a long command. */
  specCut: boolean;
  /** What is wrong with what is kept of it; empty: nothing is known to be. */
  damaged: string;
}

/** Finds one process: its id, or the newest that has this pid, tag or name. */
export type Selector = { id: string } | { pid: number } | { tag: string } | { name: string } | { any: string };

/** Selects processes; all fields must fit. */
export interface Filter {
  /** Only those that have not exited. */
  live?: boolean;
  tag?: string;
  labels?: Record<string, string>;
}

/** What a reader delivers. */
export interface ReadOptions {
  /** Default: all. */
  streams?: OutputStream[];
  /** Where each stream starts. Default 0; -1: what comes from now on. */
  from?: { [stream in OutputStream]?: number };
  /** End with what there is at the time of the call. */
  noFollow?: boolean;
  /** Give up the order between streams, for speed. */
  unordered?: boolean;
  /** Milliseconds to go on after the exit while a descendant holds a stream open. Default 0; negative: for as long as it does. */
  drain?: number;
  /** Largest piece of output, in bytes, 1 to 1 MiB. Default: the server's. */
  maxChunk?: number;
  /** Ends the reader. */
  signal?: AbortSignal;
}

/** One fact about a process, in the order of arrival. */
export type ProcessEvent =
  | { kind: 'started'; pid: number; time?: Date }
  | { kind: 'output'; stream: OutputStream; offset: number; data: Bytes; time?: Date }
  | { kind: 'gap'; stream: OutputStream; from: number; to: number }
  | { kind: 'exited'; exit: Exit; time?: Date }
  | { kind: 'eof'; stream: OutputStream; offset: number }
  | { kind: 'treeGone'; time?: Date };
