// The messages of the API as plain objects, and back. What a server may send is
// checked here.

import type { MessageInitShape } from '@bufbuild/protobuf';
import type { Duration, Timestamp } from '@bufbuild/protobuf/wkt';
import { InvalidError, protocolError } from './errors.js';
import type { ReadRequestSchema, SelectorSchema } from './gen/tend/v1/process_pb.js';
import * as pb from './gen/tend/v1/spec_pb.js';
import type { Exit, Info, OutputStream, ReadOptions, Selector, Spec, StreamInfo } from './types.js';

export const streamNames = ['stdin', 'stdout', 'stderr', 'pty'] as const;

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true }); // a mark at the beginning is a character like others

const causes = ['exited', 'signalled', 'timeout', 'oom', 'shutdown', 'killed', 'no_readers', 'lost'] as const;
const states = ['running', 'stopped', 'exited'] as const;
const inherits = { user: pb.Inherit.USER, daemon: pb.Inherit.DAEMON, none: pb.Inherit.NONE };
export const scopes = { tree: pb.Scope.TREE, leader: pb.Scope.LEADER, group: pb.Scope.GROUP };
export const streamNumbers = { stdout: pb.Stream.STDOUT, stderr: pb.Stream.STDERR, pty: pb.Stream.PTY };

export function toDuration(field: string, ms: number): { seconds: bigint; nanos: number } {
  if (!Number.isFinite(ms) || Math.abs(ms) > 315_360_000_000) throw new InvalidError(field, `is ${ms}; up to 10 years are allowed, in milliseconds`);
  const seconds = Math.trunc(ms / 1000);
  return { seconds: BigInt(seconds), nanos: Math.round((ms - seconds * 1000) * 1e6) };
}

/** A whole number as the wire has it. */
export function toInt(field: string, n: number): bigint {
  if (!Number.isSafeInteger(n)) throw new InvalidError(field, `is ${n}; a whole number is needed`);
  return BigInt(n);
}

export function milliseconds(d: Duration | undefined): number {
  return d ? Number(d.seconds) * 1000 + d.nanos / 1e6 : 0;
}

function date(t: Timestamp | undefined): Date | undefined {
  return t ? new Date(Number(t.seconds) * 1000 + t.nanos / 1e6) : undefined;
}

/** An offset or length of the server. 2^53 bytes are more than any stream has. */
export function fromInt(what: string, n: bigint): number {
  if (n < 0n || n > BigInt(Number.MAX_SAFE_INTEGER)) throw protocolError(`${n} as ${what}`);
  return Number(n);
}

export function text(field: string, s: string): string {
  if (typeof s !== 'string') throw new InvalidError(field, `is no text but ${s === null ? 'null' : `a ${typeof s}`}`);
  if (/\p{Surrogate}/u.test(s)) throw new InvalidError(field, 'has half of a surrogate pair, which is no text');
  if (s.includes('\0')) throw new InvalidError(field, 'has a NUL byte');
  return s;
}

/** undefined values are left out. */
export function textMap(field: string, map: Record<string, string | undefined> | undefined): Record<string, string> | undefined {
  if (map === undefined) return undefined;
  if (map === null || typeof map !== 'object' || Array.isArray(map)) throw new InvalidError(field, 'is no object');
  return Object.fromEntries(Object.entries(map).flatMap(([k, v]) => (v === undefined ? [] : [[text(field, k), text(field, v)]])));
}

/** A misspelt field would silently not take effect, for example isolation. */
export function known(what: string, value: object, names: readonly string[]): void {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new InvalidError(what, 'is no object');
  for (const name of Object.keys(value)) if (!names.includes(name)) throw new InvalidError(`${what}.${name}`, `is not known; ${names.join(', ')} are`);
}

const specFields: readonly (keyof Spec)[] = [
  ...(['id', 'name', 'tag', 'argv', 'shell', 'env', 'inherit', 'dir', 'cwd', 'user', 'stdin', 'pty', 'timeout', 'timeoutScope'] as const),
  ...(['limits', 'retention', 'killWithoutReaders', 'labels', 'onExit', 'onExitUrl'] as const),
];

const optional = (field: string, s: string | undefined): string | undefined => (s === undefined ? undefined : text(field, s));

/** Other libraries call dir cwd, and so may a caller. */
export function dirOf(what: string, s: { dir?: string; cwd?: string }): string | undefined {
  if (s.dir !== undefined && s.cwd !== undefined) throw new InvalidError(`${what}.cwd`, 'is another name of dir; give one of them');
  return s.dir ?? s.cwd;
}

export function toSpec(s: Spec): MessageInitShape<typeof pb.SpecSchema> {
  known('spec', s, specFields);
  const env: Record<string, string> = {};
  for (const [k, v] of Object.entries(s.env ?? {})) if (v !== undefined) env[text('env', k)] = text('env', String(v));
  const l = s.limits;
  const r = onExit(s) ? { ...s.retention, pin: true } : s.retention;
  const labels = s.labels || onExit(s) ? { ...s.labels, ...atExit(s) } : undefined;
  return {
    id: optional('id', s.id),
    name: optional('name', s.name),
    tag: optional('tag', s.tag),
    argv: s.argv?.map((a) => text('argv', a)),
    shell: optional('shell', s.shell),
    env,
    inherit: inherits[s.inherit ?? 'user'],
    dir: optional('dir', dirOf('spec', s)),
    user: optional('user', s.user),
    stdin: s.stdin === 'pipe' ? pb.StdinMode.PIPE : pb.StdinMode.NULL,
    pty: s.pty,
    timeout: s.timeout ? toDuration('timeout', s.timeout) : undefined,
    timeoutScope: scopes[s.timeoutScope ?? 'tree'],
    limits: l && {
      rlimits: l.rlimits,
      nice: l.nice,
      oomScoreAdj: l.oomScoreAdj,
      memoryMax: toInt('limits.memoryMax', l.memoryMax ?? 0),
      pidsMax: toInt('limits.pidsMax', l.pidsMax ?? 0),
      cpuWeight: toInt('limits.cpuWeight', l.cpuWeight ?? 0),
      cpus: l.cpus,
    },
    retention: r && {
      limit: toInt('retention.limit', r.limit ?? 0),
      policy: r.policy === 'block' ? pb.RetentionPolicy.BLOCK : pb.RetentionPolicy.DROP_OLDEST,
      ttl: r.ttl ? toDuration('retention.ttl', r.ttl) : undefined,
      pin: r.pin,
    },
    killWithoutReaders: s.killWithoutReaders ? toDuration('killWithoutReaders', s.killWithoutReaders) : undefined,
    labels: labels && Object.fromEntries(Object.entries(labels).map(([k, v]) => [text('labels', k), text('labels', v)])),
  };
}

/** Whether an action is requested for the end of the process. */
export const onExit = (s: Spec): boolean => !!s.onExit || !!s.onExitUrl;

/** The labels that ask for it; the pin keeps the process until it is done. */
function atExit(s: Spec): Record<string, string> {
  if (!onExit(s)) return {};
  if (s.onExitUrl && !/^https?:\/\/[^/?#]/.test(text('onExitUrl', s.onExitUrl))) throw new InvalidError('onExitUrl', 'is no URL of http or https');
  const labels: Record<string, string> = {};
  if (s.onExit) labels['tend.on-exit'] = text('onExit', s.onExit);
  if (s.onExitUrl) labels['tend.on-exit-url'] = s.onExitUrl;
  if (s.retention?.pin) labels['tend.on-exit-pin'] = '1';
  return labels;
}

function fromSpec(m: pb.Spec | undefined): Spec {
  if (!m) return {};
  const s: Spec = { id: m.id, env: { ...m.env }, stdin: m.stdin === pb.StdinMode.PIPE ? 'pipe' : 'null', labels: { ...m.labels } };
  if (m.name) s.name = m.name;
  if (m.tag) s.tag = m.tag;
  const argv = m.rawArgv.length ? m.rawArgv.map((a) => utf8.decode(a)) : m.argv;
  if (argv.length) s.argv = argv;
  const shell = m.rawShell.length ? utf8.decode(m.rawShell) : m.shell;
  if (shell) s.shell = shell;
  const dir = m.rawDir.length ? utf8.decode(m.rawDir) : m.dir;
  if (dir) s.dir = dir;
  if (m.user) s.user = m.user;
  if (m.pty) s.pty = { cols: m.pty.cols, rows: m.pty.rows };
  if (m.timeout) s.timeout = milliseconds(m.timeout);
  return s;
}

export function fromExit(m: pb.Exit): Exit {
  if (m.signal < 0 || m.signal > 127) throw protocolError(`an exit with the signal ${m.signal}`);
  return {
    code: m.code,
    signal: m.signal,
    coreDumped: m.coreDumped,
    cause: causes[m.cause] ?? 'exited',
    time: date(m.time),
    userTime: milliseconds(m.userTime),
    systemTime: milliseconds(m.systemTime),
    maxRss: Number(m.maxRss),
    lost: m.lost,
  };
}

export function fromStream(n: number): OutputStream {
  const name = streamNames[n];
  if (name === undefined || name === 'stdin') throw protocolError(`output of the stream ${n}`);
  return name;
}

export function fromStreams(all: pb.StreamInfo[]): StreamInfo[] {
  return all.map((m) => ({ stream: fromStream(m.stream), base: fromInt('a base', m.base), end: fromInt('an end', m.end), eof: m.eof }));
}

/** want: the requested id, if there was one. */
export function fromInfo(m: pb.Info | undefined, want?: string): Info {
  if (!m) throw protocolError('no process');
  if (!/^[A-Za-z0-9._-]{1,100}$/.test(m.id)) throw protocolError('a process whose id is none');
  if (want !== undefined && want !== m.id) throw protocolError(`the process ${m.id} when it was asked for ${want}`);
  return {
    id: m.id,
    pid: m.pid,
    spec: fromSpec(m.spec),
    state: states[m.state] ?? 'running',
    started: date(m.started),
    exit: m.exit && fromExit(m.exit),
    treeGone: m.treeGone,
    streams: fromStreams(m.streams),
    stdin: { open: m.stdin?.open ?? false, accepted: fromInt('the bytes of input', m.stdin?.accepted ?? 0n) },
    pinned: m.pinned,
    specCut: m.specCut,
    damaged: m.damaged,
  };
}

export function toSelector(s: Selector): MessageInitShape<typeof SelectorSchema> {
  const [entry, more] = Object.entries(s);
  if (!entry || more) throw new InvalidError('selector', 'has one of id, pid, tag, name and any');
  const [by, value] = entry;
  if (by === 'pid' && !(Number.isInteger(value) && value > 0 && value < 2 ** 31)) throw new InvalidError('pid', `is ${value}; a process has a positive number`);
  return { by: { case: by, value } as NonNullable<MessageInitShape<typeof SelectorSchema>['by']> };
}

export function toReadRequest(id: string, o: ReadOptions, from: Map<OutputStream, number>): MessageInitShape<typeof ReadRequestSchema> {
  return {
    process: { by: { case: 'id', value: id } },
    streams: o.streams?.map((s) => streamNumbers[s]),
    from: [...from].map(([stream, offset]) => ({ stream: streamNumbers[stream], offset: toInt('from', offset) })),
    noFollow: o.noFollow,
    unordered: o.unordered,
    drain: o.drain ? toDuration('drain', o.drain) : undefined,
    maxChunk: o.maxChunk,
  };
}

export { date as fromTimestamp };
