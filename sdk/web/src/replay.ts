// A terminal that shows what was written up to a moment, and plays on from there.

import type { Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import { words, type Place } from './api.js';
import { Drawing } from './drawing.js';
import { boundsOf, clockFrom, readRecording } from './recording.js';
import { drawable, type Size } from './sizes.js';
import { terminal } from './xterm.js';

export { exportCast } from './cast.js';

/** What of the output is replayed at most, its newest part, in bytes. */
export const most = 16 << 20;
/** The longest step in ms: who could not see a moment is not led past it. */
const step = 250;
/** What a terminal answers by being as new (RIS). */
const reset = new TextEncoder().encode('\x1bc');

export interface ReplayState {
  at: number;
  length: number;
  playing: boolean;
  loaded: boolean;
  /** That is shown. */
  size: Size;
  /** The index knows sizes: they are shown as they were. */
  sized: boolean;
  error?: string;
}

export class Replay {
  readonly #scope = new AbortController();
  readonly #drawing: Drawing;
  /** What was written, and the sizes between. */
  readonly #written: { at: number; what: Uint8Array | Size }[] = [];
  #drawn = 0; // of #written
  #busy = false;
  /** The size at the beginning, if the index does not say it. */
  #first: Size;
  #state: ReplayState;
  #speed = 1;
  #frame = 0;

  constructor(
    box: HTMLElement,
    place: Place,
    info: Info,
    readonly changed: (s: ReplayState) => void,
  ) {
    this.#first = drawable(info.spec?.pty);
    this.#state = { at: 0, length: 0, playing: false, loaded: false, size: this.#first, sized: false };
    this.#drawing = new Drawing(terminal({ disableStdin: true, ...this.#first }));
    this.#drawing.term.open(box);
    void this.#load(place, info);
  }

  close(): void {
    this.#scope.abort();
    cancelAnimationFrame(this.#frame);
    this.#drawing.close();
  }

  async #load(place: Place, info: Info): Promise<void> {
    const { base, end } = boundsOf(info);
    const from = Math.max(base, end - most);
    try {
      await readRecording(
        place,
        info,
        from,
        clockFrom(info, from),
        (m) => {
          if (m.kind === 'output') this.#written.push({ at: m.at, what: m.data });
          if (m.kind === 'resized') {
            this.#written.push({ at: m.at, what: m.size });
            this.#state.sized = true;
          }
          this.#state.length = m.at;
        },
        this.#scope.signal,
      );
      this.#tell({ loaded: true });
      void this.#draw();
    } catch (err) {
      if (!this.#scope.signal.aborted) this.#tell({ error: words(err) });
    }
  }

  /** Plays on, from the beginning if it is at the end; or pauses. */
  play(on: boolean): void {
    cancelAnimationFrame(this.#frame);
    if (on && this.#state.at >= this.#state.length) this.seek(0);
    this.#tell({ playing: on });
    if (!on) return;
    let before = performance.now();
    const next = (now: number) => {
      // What is seen stays behind the moment that is shown by what is being drawn, no more.
      if (!this.#busy) this.seek(this.#state.at + Math.max(0, Math.min(step, now - before)) * this.#speed);
      before = now;
      if (this.#state.at >= this.#state.length) this.#tell({ playing: false });
      else this.#frame = requestAnimationFrame(next);
    };
    this.#frame = requestAnimationFrame(next);
  }

  /** Shows a moment, in ms since the beginning. */
  seek(at: number): void {
    this.#tell({ at: Math.max(0, Math.min(at, this.#state.length)) });
    void this.#draw();
  }

  speed(times: number): void {
    this.#speed = times;
  }

  /** Draws all anew, begun in another size. */
  resize(size: Size): void {
    this.#first = size;
    this.#drawn = Infinity;
    void this.#draw();
  }

  readonly #sized = (size: Size) => this.#tell({ size });

  #tell(some: Partial<ReplayState>): void {
    if (this.#scope.signal.aborted) return;
    this.#state = { ...this.#state, ...some };
    this.changed(this.#state);
  }

  /** Draws up to the moment, which may become another one meanwhile. */
  async #draw(): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    while (!this.#scope.signal.aborted) {
      const to = this.#until(this.#state.at);
      if (to < this.#drawn) {
        this.#drawing.output(reset);
        this.#drawing.size(this.#first, this.#sized);
        this.#drawn = 0;
      } else if (to > this.#drawn) {
        const { what } = this.#written[this.#drawn++]!;
        if ('cols' in what) this.#drawing.size(what, this.#sized);
        else this.#drawing.output(what);
        await this.#drawing.room();
      } else if (this.#drawing.waiting > 0) await this.#drawing.room(0);
      else break;
    }
    this.#busy = false;
  }

  /** How many pieces were written up to a moment. */
  #until(at: number): number {
    let low = 0;
    let high = this.#written.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.#written[mid]!.at <= at) low = mid + 1;
      else high = mid;
    }
    return low;
  }
}
