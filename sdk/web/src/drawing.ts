// What a terminal has written, and its sizes, drawn one after the other by xterm.js. A program
// may write what it likes, and whoever may type into it may set any size as often as they like:
// what is handed over at once is bounded, so that the page never stands still for long.

import type { Terminal } from '@xterm/xterm';
import type { Size } from './sizes.js';
import { resize } from './xterm.js';

/** Bytes that wait to be drawn before more is handed over; xterm.js lets the browser draw between them. */
const ahead = 256 << 10;
/** Bytes that are handed over at once. */
const piece = 64 << 10;
/** A size counts as this many bytes: with it, lines are laid out anew. */
const costOfSize = 64 << 10;

export class Drawing {
  #waiting = 0;
  #room: (() => void) | undefined;
  /** The size that was handed over last, while nothing was after it. */
  #last: { size: Size } | undefined;
  #closed = false;

  constructor(readonly term: Terminal) {}

  /** Bytes that wait to be drawn. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Draws data after what came before. */
  output(data: Uint8Array, drawn?: () => void): void {
    this.#last = undefined;
    for (; data.length > piece; data = data.subarray(piece)) this.#write(data.subarray(0, piece), piece);
    this.#write(data, data.length, drawn);
  }

  /** Gives it a size after what came before; of several between which there was no output, the last alone. */
  size(size: Size, shown?: (size: Size) => void): void {
    if (this.#last) {
      this.#last.size = size;
      return;
    }
    const last = (this.#last = { size });
    this.#write('', costOfSize, () => {
      if (this.#last === last) this.#last = undefined;
      resize(this.term, last.size);
      shown?.(last.size);
    });
  }

  #write(data: Uint8Array | string, cost: number, drawn?: () => void): void {
    this.#waiting += cost;
    // What was handed over before is drawn before the callback comes, and what is handed over after it is not.
    this.term.write(data, () => {
      if (this.#closed) return;
      this.#waiting -= cost;
      drawn?.();
      this.#room?.();
    });
  }

  /** Resolves once no more than some bytes wait to be drawn, or it was closed. One may wait at a time. */
  async room(most = ahead): Promise<void> {
    while (this.#waiting > most && !this.#closed) await new Promise<void>((ok) => (this.#room = ok));
  }

  close(): void {
    this.#closed = true;
    this.term.dispose();
    this.#room?.();
  }
}
