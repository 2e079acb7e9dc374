// Lines that come right before the first one of the document: they were drawn, or came too
// fast to be, and are there for whoever scrolls up.

import type { Line } from './lines.js';

export class Above {
  #lines: Line[] = [];
  #size = 0;

  /** Keeps at most so many lines, and so many bytes of them. */
  constructor(
    readonly most: number,
    readonly mostBytes: number,
  ) {}

  get length(): number {
    return this.#lines.length;
  }

  clear(): void {
    this.#lines = [];
    this.#size = 0;
  }

  has(test: (l: Line) => boolean): boolean {
    return this.#lines.some(test);
  }

  /** Keeps lines that come after all that are there, and reports whether the oldest were dropped for them. */
  keep(lines: Line[]): boolean {
    for (const l of lines) {
      this.#lines.push(l);
      this.#size += l.to - l.from;
    }
    let gone = 0;
    while (gone < this.#lines.length && (this.#size > this.mostBytes || this.#lines.length - gone > this.most)) {
      const l = this.#lines[gone++]!;
      this.#size -= l.to - l.from;
    }
    this.#lines.splice(0, gone);
    return gone > 0;
  }

  /** Takes the last lines out. */
  take(most: number): Line[] {
    const lines = this.#lines.splice(Math.max(0, this.#lines.length - most));
    for (const l of lines) this.#size -= l.to - l.from;
    return lines;
  }
}
