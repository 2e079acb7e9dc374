// Sandboxes as plain objects, and back. What a server may send is checked here.

import type { MessageInitShape } from '@bufbuild/protobuf';
import { clean, InvalidError, protocolError } from './errors.js';
import * as pb from './gen/tend/v1/sandbox_pb.js';
import { dirOf, fromInt, fromTimestamp, known, milliseconds, text, textMap, toDuration, toInt } from './messages.js';
import type { SandboxChange, SandboxInfo, SandboxMetric, SandboxNetwork, SandboxShare, SandboxSize, SandboxSnapshot, SandboxSpec } from './sandbox-types.js';

// In the order of their numbers.
export const states = ['starting', 'ready', 'stopped', 'failed', 'paused'] as const;
const isolations = ['default', 'none', 'full'] as const;
const modes = [undefined, 'none', 'host', 'own'] as const;
const actions = ['destroy', 'pause'] as const;

/** The number of a word; absent: the default's. */
function numberOf(field: string, words: readonly (string | undefined)[], word: string | undefined): number {
  const n = word === undefined ? 0 : words.indexOf(word);
  if (n < 0) throw new InvalidError(field, `is ${JSON.stringify(word)}; ${words.filter((w) => w !== undefined).join(', ')} are known`);
  return n;
}

const optional = (field: string, s: string | undefined): string | undefined => (s === undefined ? undefined : text(field, s));

function texts(field: string, all: string[] | undefined): string[] | undefined {
  if (all !== undefined && !Array.isArray(all)) throw new InvalidError(field, 'is no array');
  return all?.map((s) => text(field, s));
}

function flag(field: string, b: boolean | undefined): boolean | undefined {
  if (b !== undefined && typeof b !== 'boolean') throw new InvalidError(field, 'is neither true nor false');
  return b;
}

const time = (field: string, ms: number | undefined) => (ms === undefined ? undefined : toDuration(field, ms));

function toNetwork(n: SandboxNetwork): MessageInitShape<typeof pb.SandboxNetworkSchema> {
  known('network', n, ['mode', 'allow', 'deny', 'public']);
  return { mode: numberOf('network.mode', modes, n.mode), allow: texts('network.allow', n.allow), deny: texts('network.deny', n.deny), public: flag('network.public', n.public) };
}

function toSize(s: SandboxSize): MessageInitShape<typeof pb.SandboxSizeSchema> {
  known('size', s, ['cpus', 'memory', 'disk', 'tasks']);
  if (s.cpus !== undefined && !Number.isFinite(s.cpus)) throw new InvalidError('size.cpus', `is ${s.cpus}; a number is needed`);
  return { cpus: s.cpus, memory: toInt('size.memory', s.memory ?? 0), disk: toInt('size.disk', s.disk ?? 0), tasks: toInt('size.tasks', s.tasks ?? 0) };
}

function toShares(all: SandboxShare[] | undefined): MessageInitShape<typeof pb.SandboxShareSchema>[] | undefined {
  if (all !== undefined && !Array.isArray(all)) throw new InvalidError('shares', 'is no array');
  return all?.map((s) => {
    known('shares', s, ['source', 'target', 'readOnly', 'copy']);
    return { source: text('shares.source', s.source), target: optional('shares.target', s.target), readOnly: flag('shares.readOnly', s.readOnly), copy: flag('shares.copy', s.copy) };
  });
}

const run = (what: string, s: Pick<SandboxSpec, 'user' | 'dir' | 'cwd' | 'env'>) => ({ user: optional('user', s.user), dir: optional('dir', dirOf(what, s)), env: textMap('env', s.env) });

const specFields: (keyof SandboxSpec)[] = ['name', 'snapshot', 'template', 'image', 'isolation', 'user', 'dir', 'cwd', 'env', 'disposable', 'idleTtl', 'deleteAfterStop', 'timeout', 'atTimeout', 'wake', 'size', 'network', 'shares', 'metadata'];

export function toSandboxSpec(s: SandboxSpec): MessageInitShape<typeof pb.SandboxSpecSchema> {
  known('spec', s, specFields);
  return {
    name: optional('name', s.name),
    snapshot: optional('snapshot', s.snapshot),
    template: optional('template', s.template),
    image: optional('image', s.image),
    isolation: numberOf('isolation', isolations, s.isolation),
    run: run('spec', s),
    disposable: flag('disposable', s.disposable),
    idleTtl: time('idleTtl', s.idleTtl),
    deleteAfterStop: time('deleteAfterStop', s.deleteAfterStop),
    timeout: time('timeout', s.timeout),
    atTimeout: numberOf('atTimeout', actions, s.atTimeout),
    wake: flag('wake', s.wake),
    size: s.size && toSize(s.size),
    network: s.network && toNetwork(s.network),
    shares: toShares(s.shares),
    metadata: textMap('metadata', s.metadata),
  };
}

const changeFields: (keyof SandboxChange)[] = ['name', 'idleTtl', 'deleteAfterStop', 'timeout', 'extend', 'atTimeout', 'network', 'user', 'dir', 'cwd', 'env', 'metadata'];

export function toUpdate(id: string, c: SandboxChange): MessageInitShape<typeof pb.UpdateSandboxRequestSchema> {
  known('change', c, changeFields);
  return {
    sandbox: id,
    name: optional('name', c.name),
    idleTtl: time('idleTtl', c.idleTtl),
    deleteAfterStop: time('deleteAfterStop', c.deleteAfterStop),
    timeout: time('timeout', c.timeout),
    extend: time('extend', c.extend),
    atTimeout: c.atTimeout === undefined ? undefined : numberOf('atTimeout', actions, c.atTimeout),
    network: c.network && toNetwork(c.network),
    run: c.user !== undefined || c.dir !== undefined || c.cwd !== undefined || c.env !== undefined ? run('change', c) : undefined,
    metadata: textMap('metadata', c.metadata),
  };
}

/** want: the id that was asked for, if it was. Its id becomes a header. */
export function fromSandbox(m: pb.Sandbox | undefined, want?: string): SandboxInfo {
  if (!m) throw protocolError('no sandbox');
  if (!/^[A-Za-z0-9._-]{1,100}$/.test(m.id)) throw protocolError('a sandbox whose id is none');
  if (want !== undefined && want !== m.id) throw protocolError(`the sandbox ${m.id} when it was asked for ${want}`);
  const mode = modes[m.network?.mode ?? 0];
  return {
    id: m.id,
    name: clean(m.name),
    state: states[m.state] ?? 'failed',
    reason: clean(m.reason),
    user: clean(m.run?.user ?? ''),
    dir: m.dir,
    env: { ...m.run?.env },
    disposable: m.disposable,
    snapshot: clean(m.snapshot),
    template: clean(m.template),
    image: clean(m.image),
    isolation: isolations[m.isolation] ?? 'default',
    idleTtl: milliseconds(m.idleTtl),
    deleteAfterStop: milliseconds(m.deleteAfterStop),
    deadline: fromTimestamp(m.deadline),
    atTimeout: actions[m.atTimeout] ?? 'destroy',
    wake: m.wake,
    size: { cpus: m.size?.cpus ?? 0, memory: fromInt('a size', m.size?.memory ?? 0n), disk: fromInt('a size', m.size?.disk ?? 0n), tasks: fromInt('a size', m.size?.tasks ?? 0n) },
    network: { ...(mode ? { mode } : {}), allow: m.network?.allow ?? [], deny: m.network?.deny ?? [], public: m.network?.public ?? false },
    shares: m.shares.map((s) => ({ source: s.source, target: s.target || s.source, readOnly: s.readOnly, ...(s.copy && { copy: true }) })),
    metadata: { ...m.metadata },
    created: fromTimestamp(m.created),
    updated: fromTimestamp(m.updated),
    stopped: fromTimestamp(m.stopped),
    paused: fromTimestamp(m.paused),
    copied: fromInt('a size', m.copied),
    toCopy: fromInt('a size', m.toCopy),
  };
}

export function fromSnapshot(m: pb.SandboxSnapshot): SandboxSnapshot {
  return {
    id: clean(m.id),
    name: clean(m.name),
    state: states[m.state] ?? 'failed',
    reason: clean(m.reason),
    sandbox: clean(m.sandbox),
    bytes: fromInt('a size', m.bytes),
    created: fromTimestamp(m.created),
  };
}

export function fromMetric(m: pb.SandboxMetric): SandboxMetric {
  return {
    time: fromTimestamp(m.time),
    cpus: m.cpus,
    cpuPercent: m.cpuPercent,
    memUsed: fromInt('a size', m.memUsed),
    memCache: fromInt('a size', m.memCache),
    memTotal: fromInt('a size', m.memTotal),
    diskUsed: fromInt('a size', m.diskUsed),
    diskTotal: fromInt('a size', m.diskTotal),
    tasks: fromInt('a number', m.tasks),
    oomKills: fromInt('a number', m.oomKills),
  };
}
