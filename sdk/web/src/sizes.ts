// Sizes of terminals. Whoever may type into one may set any, as often as they like, and a
// program may, too: what is drawn is bounded, since xterm.js lays out all lines anew at once.

/** The size of a terminal in character cells. */
export interface Size {
  cols: number;
  rows: number;
}

/** Columns or rows that are drawn at most: a program may set 65,535. */
const widest = 1000;
/** Cells of a screen that are drawn at most. */
const largest = 250_000;

/** A size that can be drawn; 0 means that it is not known. */
export function drawable(s: Size | undefined): Size {
  const cols = Math.min(s?.cols || 80, widest);
  return { cols, rows: Math.min(s?.rows || 24, widest, Math.floor(largest / cols)) };
}

/** Lines that are kept above the screen, at most. */
const mostLines = 5000;
/** Cells that are kept at most, those of the screen among them. */
const mostCells = 500_000;

/** Lines that are kept above a screen of this size. */
export const linesAbove = ({ cols, rows }: Size) => Math.max(0, Math.min(mostLines, Math.floor(mostCells / cols) - rows));

/**
 * Tells changes of size that are new from those that a read repeats, which begins with those
 * at the offset that was reached. The first of a read may have no time: it holds where that begins.
 */
export class SizesTaken {
  #any = false;
  #at = -1;
  #count = 0;
  #again = 0;

  /** A read begins. */
  again(): void {
    this.#again = this.#count;
  }

  fresh(offset: number, timed: boolean): boolean {
    if (!timed ? this.#any : offset < this.#at) return false;
    if (timed && offset === this.#at && this.#again > 0) {
      this.#again--;
      return false;
    }
    if (timed && offset > this.#at) [this.#at, this.#count, this.#again] = [offset, 0, 0];
    if (timed) this.#count++;
    this.#any = true;
    return true;
  }
}
