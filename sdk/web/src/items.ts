// The lines of the overview: services, sandboxes and processes as one list.

import type { OverviewProcess } from '../../js/src/gen/tend/v1/overview_pb.js';
import { SandboxAction, SandboxState, type Sandbox } from '../../js/src/gen/tend/v1/sandbox_pb.js';
import { HealStatus, ServicePhase, type ServiceStatus } from '../../js/src/gen/tend/v1/service_pb.js';
import { age, ended, millis } from './format.js';
import type { Health } from './parts.js';
import { paths } from './router.js';
import type { Store } from './types.js';

export type Kind = 'service' | 'sandbox' | 'process';

export interface Item {
  kind: Kind;
  id: string;
  href: string;
  name: string;
  detail: string;
  box: string;
  health: Health;
  word: string;
  cpu: number | undefined;
  memory: bigint | undefined;
  /** When it began to be so, on the server's clock in milliseconds. */
  since: number;
  over: boolean;
  labels: { [key: string]: string };
}

const phases: Record<ServicePhase, [Health, string]> = {
  [ServicePhase.UNSPECIFIED]: ['warn', 'unknown'],
  [ServicePhase.IDLE]: ['done', 'stopped'],
  [ServicePhase.WAITING]: ['warn', 'waiting'],
  [ServicePhase.STARTING]: ['warn', 'starting'],
  [ServicePhase.RUNNING]: ['ok', 'running'],
  [ServicePhase.STOPPING]: ['warn', 'stopping'],
  [ServicePhase.KILLING]: ['warn', 'stopping'],
  [ServicePhase.PAUSING]: ['warn', 'restarts soon'],
  [ServicePhase.COMPLETED]: ['done', 'completed'],
  [ServicePhase.FAILED]: ['broken', 'failed'],
};

export function serviceState(s: ServiceStatus): [Health, string] {
  switch (s.healing) {
    case HealStatus.BROKEN:
      return ['broken', 'broken'];
    case HealStatus.HEALING:
      return ['warn', 'healing'];
    case HealStatus.VERIFYING:
      return ['warn', 'verifying'];
  }
  if (s.phase === ServicePhase.RUNNING && !s.ready) return ['warn', s.failures ? 'unhealthy' : 'not ready'];
  if (s.phase === ServicePhase.RUNNING) return ['ok', 'healthy'];
  return phases[s.phase] ?? ['warn', 'unknown'];
}

export function processState(p: Pick<OverviewProcess, 'exit'>): [Health, string] {
  if (!p.exit) return ['ok', 'running'];
  return ['done', ended(p.exit)]; // nothing says that it should run
}

const boxes: Record<SandboxState, [Health, string]> = {
  [SandboxState.STARTING]: ['warn', 'starting'],
  [SandboxState.READY]: ['ok', 'ready'],
  [SandboxState.STOPPED]: ['done', 'stopped'],
  [SandboxState.FAILED]: ['broken', 'failed'],
  [SandboxState.PAUSED]: ['warn', 'paused'],
};

export const boxState = (b: Sandbox): [Health, string] => boxes[b.state] ?? ['warn', 'unknown'];

/** When a sandbox ends by itself, and what becomes of it; empty: it does not. */
export function ending(b: Sandbox, now: number): string {
  if (!b.deadline || (b.state !== SandboxState.READY && b.state !== SandboxState.STARTING)) return '';
  return `${b.atTimeout === SandboxAction.PAUSE ? 'paused' : 'removed'} in ${age(millis(b.deadline) - now)}`;
}

export const nameOf = (p: { id: string; name: string; tag: string }) => p.name || p.tag || p.id.slice(0, 13);

export function boxName(store: Store, id: string): string {
  return store.sandboxes.get(id)?.sandbox?.name || id;
}

/** Everything, in no order. Runs of services are shown as their services. */
export function items(store: Store): Item[] {
  const all: Item[] = [];
  for (const s of store.services.values()) {
    const [health, word] = serviceState(s);
    const p = store.processes.get(s.process);
    all.push({
      kind: 'service', id: s.name, href: paths.service(s.name), name: s.name, detail: s.why || p?.command || '', box: p?.sandbox ?? '', health, word,
      cpu: p?.cpu, memory: p?.memory, since: store.now() - store.inPhase(s.name), over: !s.up, labels: p?.labels ?? {},
    });
  }
  for (const { sandbox: b, cpu, memory } of store.sandboxes.values()) {
    if (!b) continue;
    const [health, word] = boxState(b);
    const what = b.reason || (b.template && `from ${b.template}`) || b.dir;
    all.push({
      kind: 'sandbox', id: b.id, href: paths.sandbox(b.id), name: b.name || b.id, detail: [ending(b, store.now()), what].filter(Boolean).join(' \u00b7 '), box: b.id, health, word,
      cpu, memory, since: millis(b.created), over: health === 'done', labels: b.metadata,
    });
  }
  for (const p of store.processes.values()) {
    if (p.labels['tend.service'] && store.services.has(p.labels['tend.service'])) continue;
    const [health, word] = processState(p);
    all.push({
      kind: 'process', id: p.id, href: paths.process(p.id, p.sandbox), name: nameOf(p), detail: p.command, box: p.sandbox, health, word,
      cpu: p.exit ? undefined : p.cpu, memory: p.exit ? undefined : p.memory, since: millis(p.exit?.time ?? p.started), over: !!p.exit, labels: p.labels,
    });
  }
  return all;
}

export interface Wish {
  text: string;
  kind: string;
  state: string;
  box: string;
  sort: string;
}

/** The value by which a line is grouped: its own label, or that of its sandbox. */
function valueOf(store: Store, i: Item, by: string): string {
  if (by === 'sandbox:') return i.box ? boxName(store, i.box) : '';
  return i.labels[by] ?? store.sandboxes.get(i.box)?.sandbox?.metadata[by] ?? '';
}

/** Keys of labels that lines can be grouped by, at most 50. */
export function labelsOf(all: Item[]): string[] {
  const keys = new Set<string>();
  for (const i of all) for (const k of Object.keys(i.labels)) if (!k.startsWith('tend.')) keys.add(k);
  return [...keys].sort((a, b) => a.localeCompare(b)).slice(0, 50);
}

/** A heading over the lines with one value. */
export interface Group {
  group: string;
  count: number;
}

/** The lines under headings; those without a value come last. Within a group the order stays. */
export function grouped(store: Store, shown: Item[], by: string): (Item | Group)[] {
  if (!by) return shown;
  const groups = new Map<string, Item[]>();
  for (const i of shown) {
    const v = valueOf(store, i, by);
    const all = groups.get(v);
    if (all) all.push(i);
    else groups.set(v, [i]);
  }
  const name = (v: string) => (v ? (by === 'sandbox:' ? v : `${by}=${v}`) : by === 'sandbox:' ? 'on the machine' : `without ${by}`);
  return [...groups].sort(([a], [b]) => Number(!a) - Number(!b) || a.localeCompare(b)).flatMap(([v, all]) => [{ group: name(v), count: all.length }, ...all]);
}

const ranks: Record<Health, number> = { broken: 0, warn: 1, ok: 2, done: 3 };
const kinds: Record<Kind, number> = { service: 0, sandbox: 1, process: 2 };

/** What is broken comes first; then what was asked for. */
export function choose(all: Item[], w: Wish): Item[] {
  const needles = w.text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((i) => {
    if (w.kind && i.kind !== w.kind) return false;
    if (w.state && i.health !== w.state) return false;
    if (w.box && (i.box !== w.box || i.kind === 'sandbox')) return false;
    return needles.every((n) => {
      const label = /^([^=]+)=(.*)$/.exec(n);
      if (label) return Object.entries(i.labels).some(([k, v]) => k.toLowerCase() === label[1] && v.toLowerCase().startsWith(label[2]!));
      return `${i.name}\n${i.detail}\n${i.id}\n${i.word}`.toLowerCase().includes(n);
    });
  });
  const [by, down] = w.sort.startsWith('-') ? [w.sort.slice(1), -1] : [w.sort, 1];
  const usual = (a: Item, b: Item) => ranks[a.health] - ranks[b.health] || kinds[a.kind] - kinds[b.kind] || (a.over || b.over ? b.since - a.since : 0) || a.name.localeCompare(b.name) || a.id.localeCompare(b.id);
  const orders: Record<string, (a: Item, b: Item) => number> = {
    name: (a, b) => a.name.localeCompare(b.name),
    cpu: (a, b) => (b.cpu ?? -1) - (a.cpu ?? -1),
    memory: (a, b) => Number(b.memory ?? -1n) - Number(a.memory ?? -1n),
    since: (a, b) => b.since - a.since,
  };
  const order = orders[by];
  return found.sort(order ? (a, b) => down * order(a, b) || usual(a, b) : usual);
}
