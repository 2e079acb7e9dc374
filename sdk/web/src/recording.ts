// What a terminal has written, and when: the bytes of the spool with the times of its index.

import { Stream, type Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import { follow, type Place } from './api.js';
import { millis } from './format.js';
import { drawable, SizesTaken, type Size } from './sizes.js';

/** Something that happened, in ms since the beginning. */
export type Moment = { at: number } & ({ kind: 'output'; data: Uint8Array } | { kind: 'resized'; size: Size } | { kind: 'freed'; bytes: number } | { kind: 'end' });

/**
 * Times of the index as ms since the beginning: since the start, if that is kept, else since
 * the first time that is known. They never go back, though a clock may be set back; and what
 * arrived at a time that is not known has that of what came before it.
 */
export class Clock {
  #at = 0;

  /** zero is in ms since 1970; 0 if it is not known. */
  constructor(public zero: number) {}

  at(time: number): number {
    if (time && !this.zero) this.zero = time;
    if (time) this.#at = Math.max(this.#at, time - this.zero);
    return this.#at;
  }
}

export function boundsOf(info: Info): { base: number; end: number } {
  const out = info.streams.find((s) => s.stream === Stream.PTY);
  return { base: Number(out?.base ?? 0n), end: Number(out?.end ?? 0n) };
}

/** Reads what there is from an offset on, over killed servers. clock then knows when it began. */
export async function readRecording(at: Place, info: Info, from: number, clock: Clock, take: (m: Moment) => void, signal: AbortSignal): Promise<void> {
  let reached = from;
  const sizes = new SizesTaken();
  await follow(
    (s) => {
      sizes.again();
      return at.processes.read({ process: { by: { case: 'id', value: info.id } }, streams: [Stream.PTY], from: [{ stream: Stream.PTY, offset: BigInt(reached) }], noFollow: true, exactTimes: true, sizes: true }, { signal: s });
    },
    ({ event }) => {
      const fact = event?.fact;
      if (fact?.case === 'goingAway') return 'again';
      if (fact?.case === 'exited') take({ at: clock.at(millis(event!.time)), kind: 'end' });
      if (fact?.case === 'gap') {
        const to = Number(fact.value.to);
        if (to > reached) take({ at: clock.at(0), kind: 'freed', bytes: to - reached });
        reached = Math.max(reached, to);
      }
      if (fact?.case === 'resized' && sizes.fresh(Number(fact.value.offset), !!event!.time)) take({ at: clock.at(millis(event!.time)), kind: 'resized', size: drawable(fact.value.size) });
      if (fact?.case !== 'output') return true;
      reached = Number(fact.value.offset) + fact.value.data.length;
      take({ at: clock.at(millis(event!.time)), kind: 'output', data: fact.value.data });
      return true;
    },
    signal,
  );
}

/** The clock of a recording from an offset on. */
export const clockFrom = (info: Info, from: number) => new Clock(from === 0 ? millis(info.started) : 0);
