// What sandboxes are asked to be, and what is known of them.

/** What a sandbox is doing. */
export type SandboxState = 'starting' | 'ready' | 'stopped' | 'failed' | 'paused';

/** What a sandbox may use. 0, or nothing: no limit of its own. */
export interface SandboxSize {
  cpus?: number;
  /** Bytes. */
  memory?: number;
  disk?: number;
  /** Processes and threads together. */
  tasks?: number;
}

export interface SandboxNetwork {
  /** `none`: nothing but each other; `host`: what the machine reaches, and the machine; `own`: what allow and deny say. Default: the server's. */
  mode?: 'none' | 'host' | 'own';
  /** Outgoing: host names, "*." and a domain, addresses or CIDRs, each with ":port" or without. */
  allow?: string[];
  deny?: string[];
  /** Ports inside are served without a token of the sandbox. */
  public?: boolean;
}

/** A directory or file of the server's machine that is seen inside. */
export interface SandboxShare {
  /** Absolute, without symbolic links. */
  source: string;
  /** Absolute. Default: the source. */
  target?: string;
  readOnly?: boolean;
  /** Programs inside may change it, and what they change is the sandbox's alone: the source stays as it is. */
  copy?: boolean;
}

/** What to make. Each field's absence is its default. Times are in milliseconds. */
export interface SandboxSpec {
  /** Unique: 1 to 128 letters, digits, '.', '_' or '-', and not of the form of an ID. Default: the server makes one up. */
  name?: string;
  /** What its files are at first; one of them at most. */
  snapshot?: string;
  template?: string;
  /** An id or a name of an image that is there: `images.pull` fetches one. */
  image?: string;
  /** `none`: programs see the machine itself; `full`: all layers that the server has. Default: the server's. */
  isolation?: 'none' | 'full';
  /** Of processes that do not say. dir is absolute. */
  user?: string;
  dir?: string;
  /** Another name of dir. */
  cwd?: string;
  env?: Record<string, string | undefined>;
  /** A stop removes the files. */
  disposable?: boolean;
  /** It is stopped when nobody has used it and no process ran for this long, and destroyed this long after it was stopped. 0: never. */
  idleTtl?: number;
  deleteAfterStop?: number;
  /** From now until atTimeout is done to it. 0: never. */
  timeout?: number;
  /** Default: destroy. */
  atTimeout?: 'destroy' | 'pause';
  /** Traffic for it resumes it while it is paused. */
  wake?: boolean;
  size?: SandboxSize;
  network?: SandboxNetwork;
  shares?: SandboxShare[];
  /** Kept for you: 64 entries of 64 KiB. */
  metadata?: Record<string, string>;
}

/** What is known of a sandbox at one moment. */
export interface SandboxInfo {
  /** Never used again for another one. */
  id: string;
  name: string;
  state: SandboxState;
  /** Of a failed one. */
  reason: string;
  user: string;
  /** Where processes begin that name no directory. */
  dir: string;
  env: Record<string, string>;
  disposable: boolean;
  snapshot: string;
  template: string;
  /** The id of its image. */
  image: string;
  isolation: 'default' | 'none' | 'full';
  idleTtl: number;
  deleteAfterStop: number;
  deadline?: Date;
  atTimeout: 'destroy' | 'pause';
  wake: boolean;
  /** As it is enforced. */
  size: Required<SandboxSize>;
  network: SandboxNetwork;
  shares: SandboxShare[];
  metadata: Record<string, string>;
  created?: Date;
  updated?: Date;
  stopped?: Date;
  paused?: Date;
  /**
   * While its files are copied, for a snapshot or a fork: the bytes that are copied, and about how many there are; 0: not known yet.
   * Both are 0 while none are copied: where nothing runs in it they are moved.
   */
  copied: number;
  toCopy: number;
}

/** What to change; what is not there stays as it is. Times are in milliseconds. */
export interface SandboxChange {
  name?: string;
  idleTtl?: number;
  deleteAfterStop?: number;
  /** From now; 0: never. */
  timeout?: number;
  /** From now, if that is later than the deadline; not with timeout. */
  extend?: number;
  atTimeout?: 'destroy' | 'pause';
  network?: SandboxNetwork;
  user?: string;
  dir?: string;
  /** Another name of dir. */
  cwd?: string;
  /** Entries are added. */
  env?: Record<string, string | undefined>;
  metadata?: Record<string, string>;
}

/** Selects sandboxes; all fields must fit. */
export interface SandboxFilter {
  /** One of these. */
  states?: SandboxState[];
  /** All of these entries. */
  metadata?: Record<string, string>;
}

/** Files of a sandbox that were kept. */
export interface SandboxSnapshot {
  id: string;
  name: string;
  state: SandboxState;
  reason: string;
  /** The id of the sandbox that it was made of. */
  sandbox: string;
  bytes: number;
  created?: Date;
}

/** One sample of what a sandbox used. A total is the limit, or what the machine has; sizes are in bytes. */
export interface SandboxMetric {
  time?: Date;
  cpus: number;
  /** 100 is one CPU. */
  cpuPercent: number;
  memUsed: number;
  memCache: number;
  memTotal: number;
  diskUsed: number;
  diskTotal: number;
  tasks: number;
  oomKills: number;
}

/** What opens one sandbox alone. */
export interface SandboxAccess {
  /** For the header X-Access-Token. */
  token: string;
  /** For the ports of a sandbox that is not public, as the header E2b-Traffic-Access-Token; empty: it is. */
  trafficToken: string;
  /** Domains below which the sandbox has host names. */
  domains: string[];
}

/** Of a signed URL of a file. */
export interface SignedOptions {
  /** One inside; default: the sandbox's own. */
  user?: string;
  /** Milliseconds from now, 1,000 to those of 7 days; default: an hour. */
  expires?: number;
  signal?: AbortSignal;
}
