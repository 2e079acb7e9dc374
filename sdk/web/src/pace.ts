// How many lines may be drawn: as many as are due by now, so that a flood costs no more
// than can be seen.

export class Pace {
  #credit: number;
  #since = performance.now();

  /** first may be drawn at once; perMs more each millisecond, up to most. */
  constructor(
    first: number,
    readonly perMs: number,
    readonly most: number,
  ) {
    this.#credit = first;
  }

  /** What may be drawn now, and never less than least. */
  room(least: number): number {
    const now = performance.now();
    this.#credit = Math.min(this.most, Math.max(0, this.#credit) + this.perMs * (now - this.#since));
    this.#since = now;
    return Math.ceil(Math.max(this.#credit, least));
  }

  drawn(lines: number): void {
    this.#credit -= lines;
  }
}
