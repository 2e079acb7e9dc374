// What a process has written until now, for those who cannot take all of it.

import type { DescMessage, DescMethod, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { bytesOf, type Bytes } from '#platform';
import { InvalidError } from './errors.js';
import { Omitted, ViewService, type GrepResponse, type ViewResponse } from './gen/tend/v1/view_pb.js';
import type { Link } from './link.js';
import { fromInt, fromStream, streamNumbers, text, toInt } from './messages.js';
import type { OutputStream } from './types.js';

/** So many lines (up to 1 Mi) or bytes (up to 16 MiB). */
export type Amount = { lines: number } | { bytes: number };

/** Which output is looked at. */
export interface LookOptions {
  /** Default: all. */
  streams?: OutputStream[];
  /** Where each stream starts. Default 0. */
  from?: { [stream in OutputStream]?: number };
  /** Take terminal escape sequences away. */
  strip?: boolean;
  /** Cut lines after so many bytes, 16 to 16 MiB. Default: whole lines; of grep 64 KiB. */
  maxLine?: number;
  signal?: AbortSignal;
}

/** Beginning and end are of all streams together, in the order of arrival. Neither: everything. */
export interface ViewOptions extends LookOptions {
  head?: Amount;
  tail?: Amount;
}

/** Options of grep. */
export interface GrepOptions extends LookOptions {
  /** End after so many matches. Default 0: never. */
  limit?: number;
  /** Find the lines that do not match. */
  invert?: boolean;
  /** Lines of the same stream around a match, 0 to 1,000. */
  before?: number;
  after?: number;
}

/** A piece of a view: the raw range from..to, as text or left out. */
export interface Piece {
  stream: OutputStream;
  from: number;
  to: number;
  text: Bytes;
  /** Why it is not shown: between head and tail, the rest of a line that was cut, freed by retention. */
  omitted?: 'middle' | 'longLine' | 'freed';
}

/** A line that matches, or (`context`) one near it; or a range that was freed and not searched. */
export type Match =
  | { kind: 'match'; stream: OutputStream; from: number; to: number; line: number; text: Bytes; cut: boolean; context: boolean }
  | { kind: 'gap'; stream: OutputStream; from: number; to: number };

const omitted = { [Omitted.UNSPECIFIED]: undefined, [Omitted.MIDDLE]: 'middle', [Omitted.LONG_LINE]: 'longLine', [Omitted.FREED]: 'freed' } as const;

const amount = (field: string, a: Amount | undefined) => {
  if (!a) return undefined;
  if ('lines' in a && 'bytes' in a) throw new InvalidError(field, 'has lines and bytes; one of them is possible');
  return 'lines' in a ? { lines: toInt(field, a.lines) } : { bytes: toInt(field, a.bytes) };
};

const common = (id: string, o: LookOptions) => ({
  process: { by: { case: 'id' as const, value: id } },
  streams: o.streams?.map((s) => streamNumbers[s]),
  from: Object.entries(o.from ?? {}).map(([stream, offset]) => ({ stream: streamNumbers[stream as OutputStream], offset: toInt('from', offset ?? 0) })),
  stripAnsi: o.strip,
  maxLine: o.maxLine,
});

/** @internal */
export async function view(link: Link, id: string, o: ViewOptions, headers?: Record<string, string>): Promise<Piece[]> {
  const request = { ...common(id, o), head: amount('head', o.head), tail: amount('tail', o.tail) };
  return collect(link, ViewService.method.view, request, o.signal, headers, (m: ViewResponse) => ({
    stream: fromStream(m.stream),
    from: fromInt('an offset', m.from),
    to: fromInt('an offset', m.to),
    text: bytesOf(m.text),
    omitted: m.omitted in omitted ? omitted[m.omitted] : 'middle',
  }));
}

/** @internal */
export async function grep(link: Link, id: string, pattern: RegExp | string, o: GrepOptions, headers?: Record<string, string>): Promise<Match[]> {
  if (o.invert || o.before || o.after) await link.needs('grepOptions', 'invert, before and after of a search', o.signal);
  const source = typeof pattern === 'string' ? text('pattern', pattern) : pattern.source;
  const request = { ...common(id, o), pattern: source, limit: toInt('limit', o.limit ?? 0), invert: o.invert, before: o.before, after: o.after };
  return collect(link, ViewService.method.grep, request, o.signal, headers, ({ found }: GrepResponse) => {
    if (found.case === undefined) return undefined; // of a later version
    const { value } = found;
    const range = { stream: fromStream(value.stream), from: fromInt('an offset', value.from), to: fromInt('an offset', value.to) };
    if (found.case === 'freed') return { kind: 'gap' as const, ...range };
    return { kind: 'match' as const, ...range, line: Number(found.value.line), text: bytesOf(found.value.text), cut: found.value.cut, context: found.value.context };
  });
}

/** All of a stream that has no place to go on from: a broken one is asked for again, from its beginning. */
async function collect<I extends DescMessage, O extends DescMessage, T>(
  link: Link,
  method: DescMethod & { input: I; output: O },
  request: MessageInitShape<I>,
  signal: AbortSignal | undefined,
  headers: Record<string, string> | undefined,
  read: (m: MessageShape<O>) => T | undefined,
): Promise<T[]> {
  const all: T[] = [];
  const open = (s: AbortSignal) => {
    all.length = 0;
    return link.connect.stream(method, request, { signal: s, headers });
  };
  for await (const one of link.follow(open, (m) => ({ value: read(m), progress: false }), () => false, signal)) all.push(one);
  return all;
}
