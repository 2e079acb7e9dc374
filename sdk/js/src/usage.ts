// What the machine, its services and its sandboxes use, and have used.

import { clean, InvalidError } from './errors.js';
import { OverviewService, type Usage as Message } from './gen/tend/v1/overview_pb.js';
import type { Link } from './link.js';
import { fromInt, fromTimestamp, text, toDuration } from './messages.js';

/** What the machine, a sandbox or a service uses, or has used. */
export interface Usage {
  kind: 'machine' | 'sandbox' | 'service';
  /** Of a sandbox; empty of others. */
  id: string;
  name: string;
  /** Processors that it may use; 0: not known, as of the past. */
  cpus: number;
  /** Bytes that it may use; 0: not known, as of the past. */
  memoryTotal: number;
  /** The oldest first. A time without one was not measured: nothing ran, or no server did. */
  points: UsagePoint[];
}

/** What was used for some time. */
export interface UsagePoint {
  /** The end of that time. */
  time?: Date;
  /** Processors; 0.5 is a half of one. */
  cpu: number;
  /** Bytes; of five minutes the most. */
  memory: number;
  /** Bytes a second; undefined: not known, as of a service on the machine. */
  received?: number;
  sent?: number;
}

/** @internal since: milliseconds; undefined: now. */
export async function usage(link: Link, since: number | undefined, names: string[], signal?: AbortSignal): Promise<Usage[]> {
  if (!Array.isArray(names)) throw new InvalidError('names', 'is no array');
  const request = { names: names.map((n) => text('names', n)), since: since === undefined ? undefined : toDuration('since', since) };
  return (await link.call(OverviewService.method.usage, request, { signal })).usages.map(fromUsage);
}

const rate = (n: bigint | undefined) => (n === undefined ? undefined : fromInt('a rate', n));

function fromUsage(m: Message): Usage {
  return {
    kind: m.kind as Usage['kind'],
    id: m.id,
    name: clean(m.name),
    cpus: m.cpus,
    memoryTotal: fromInt('a size', m.memoryTotal),
    points: m.points.map((p) => ({ time: fromTimestamp(p.time), cpu: p.cpu / 1000, memory: fromInt('a size', p.memory), received: rate(p.received), sent: rate(p.sent) })),
  };
}
