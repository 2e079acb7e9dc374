// What is asked for of an output: a block of one stream from any offset, or the newest of
// several streams together; as it was written, with the time of each piece.

import { Omitted } from '../../js/src/gen/tend/v1/view_pb.js';
import type { Stream } from '../../js/src/gen/tend/v1/spec_pb.js';
import { repeat, type Place } from './api.js';
import { millis } from './format.js';
import { afterLine } from './lines.js';

/** Bytes that follow each other, and when the first of them arrived. */
export interface Piece {
  stream: Stream;
  offset: number;
  data: Uint8Array;
  time: number;
}

export interface Block {
  /** The offset of the first byte: a later one than was asked for if that is not kept. */
  at: number;
  pieces: Piece[];
  freed: boolean;
}

/** Reads a block of a stream, over killed servers. */
export function readBlock(place: Place, id: string, stream: Stream, from: number, bytes: number, signal: AbortSignal): Promise<Block> {
  return repeat(async () => {
    const pieces: Piece[] = [];
    let at = -1;
    let freed = false;
    const req = { process: { by: { case: 'id' as const, value: id } }, streams: [stream], from: [{ stream, offset: BigInt(from) }], head: { bytes: BigInt(bytes) }, times: true };
    for await (const m of place.views.view(req, { signal })) {
      if (m.omitted === Omitted.FREED) freed = true;
      if (m.omitted !== Omitted.UNSPECIFIED) continue;
      if (at < 0) at = Number(m.from);
      pieces.push({ stream, offset: Number(m.from), data: m.text, time: millis(m.time) });
    }
    return { at: at < 0 ? from : at, pieces, freed };
  }, signal);
}

/** Reads the newest bytes of several streams, in the order in which they came. */
export function readNewest(place: Place, id: string, streams: Stream[], bytes: number, signal: AbortSignal): Promise<Piece[]> {
  return repeat(async () => {
    const pieces: Piece[] = [];
    for await (const m of place.views.view({ process: { by: { case: 'id', value: id } }, streams, tail: { bytes: BigInt(bytes) }, times: true }, { signal })) {
      if (m.omitted === Omitted.UNSPECIFIED) pieces.push({ stream: m.stream, offset: Number(m.from), data: m.text, time: millis(m.time) });
    }
    return pieces;
  }, signal);
}

/** Cuts off what comes before the first whole line, if there is one, and returns how many bytes that is. */
export function cutFront(pieces: Piece[]): number {
  let gone = 0;
  for (const [n, p] of pieces.entries()) {
    const cut = afterLine(p.data);
    gone += cut || p.data.length;
    if (!cut) continue;
    if (cut === p.data.length && n === pieces.length - 1) return 0;
    for (const before of pieces.slice(0, n)) before.data = before.data.subarray(before.data.length);
    p.data = p.data.subarray(cut);
    p.offset += cut;
    return gone;
  }
  return 0;
}
