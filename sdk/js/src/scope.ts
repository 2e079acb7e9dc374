// Lifetimes: what ends with a caller's signal, with the client, or by itself.

import { TendError } from './errors.js';

export const closedError = (): TendError => new TendError('closed', 'the client was closed');

/**
 * A signal that ends with any of others, or by abort. Not AbortSignal.any: a
 * signal that lives long must not keep those that were made of it.
 */
export class Scope {
  readonly #controller = new AbortController();
  readonly #parents: [AbortSignal, () => void][] = [];

  constructor(...parents: (AbortSignal | undefined)[]) {
    for (const parent of parents) {
      if (!parent) continue;
      const end = () => this.abort(parent.reason);
      if (parent.aborted) end();
      parent.addEventListener('abort', end, { once: true });
      this.#parents.push([parent, end]);
    }
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#controller.abort(reason);
  }

  /** Takes it off its parents. To be called once it is not needed. */
  end(): void {
    for (const [parent, end] of this.#parents.splice(0)) parent.removeEventListener('abort', end);
  }
}

/** Waits, or throws the signal's reason. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const end = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', end);
      resolve();
    }, ms);
    signal.addEventListener('abort', end, { once: true });
  });
}
