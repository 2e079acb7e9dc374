// When a lost connection is replaced. The rules are those of the Go SDK
// (retry.go of the module's root).

/**
 * When a lost connection is replaced. By default after 0.5 s, doubling to 8 s,
 * each shortened by up to a quarter at random so that many clients do not come
 * at once; at most 10 times without progress. A server that says it is going
 * away is called again at once, and so is one whose listening sockets outlive
 * it: the connection then waits for the next server.
 */
export interface RetryOptions {
  /** Milliseconds before the second attempt. Default 500. */
  first?: number;
  /** Most milliseconds between attempts. Default 8,000. */
  max?: number;
  /** Attempts without progress; 0: none. Default 10. */
  attempts?: number;
}

/** Counts the attempts of one call or stream. */
export class Attempts {
  readonly #first: number;
  readonly #max: number;
  readonly #limit: number;
  #n = 0;

  constructor(
    options: RetryOptions,
    private readonly random: () => number = Math.random,
  ) {
    this.#first = atLeast(options.first, 1, 500);
    this.#max = atLeast(options.max, 1, 8_000);
    this.#limit = atLeast(options.attempts, 0, 10);
  }

  /** Starts the count anew. */
  progress(): void {
    this.#n = 0;
  }

  /**
   * How many milliseconds to wait before the next attempt; undefined: there is
   * none. A second attempt in a row is never at once: nothing may spin.
   */
  next(atOnce: boolean): number | undefined {
    this.#n++;
    if (this.#n > this.#limit) return undefined;
    if (atOnce && this.#n === 1) return 0;
    const delay = Math.min(this.#first * 2 ** (this.#n - 1), this.#max);
    return delay - (this.random() * delay) / 4;
  }
}

function atLeast(value: number | undefined, least: number, fallback: number): number {
  return value === undefined || Number.isNaN(value) || value < least ? fallback : value;
}
