// Input of one process, in order and exactly once, over connections that may be
// lost: the name of the writer and an offset show the server what it has taken.

import { hasCode, InvalidError, TendError } from './errors.js';
import { ProcessService } from './gen/tend/v1/process_pb.js';
import type { Link } from './link.js';
import { fromInt, toInt } from './messages.js';
import { randomHex } from './random.js';

/** Most bytes of one request. */
const maxPart = 256 << 10;

/** One queue of writes to one process. */
export class Writer {
  #turn: Promise<unknown> = Promise.resolve();
  /** "": the next write begins anew. */
  #name = '';
  #offset = 0;
  /** The last failure, and how many there were: what was queued behind one is not sent. */
  #failed: unknown;
  #failures = 0;

  constructor(
    private readonly link: Link,
    private readonly id: string,
    private readonly headers?: Record<string, string>,
  ) {}

  /**
   * Resolves when the server has taken it, after all that was written before. When
   * a write fails, those that wait behind it fail alike: nothing may arrive after a
   * hole. A later one begins anew.
   */
  write(data: Uint8Array, eof: boolean, signal?: AbortSignal): Promise<void> {
    if (!(data instanceof Uint8Array)) throw new InvalidError('data', 'is no Uint8Array');
    const failures = this.#failures;
    const turn = this.#turn.then(async () => {
      if (failures !== this.#failures) throw this.#failed;
      signal?.throwIfAborted();
      try {
        await this.#write(data, eof, signal);
      } catch (err) {
        this.#failed = err;
        this.#failures++;
        throw err;
      }
    });
    this.#turn = turn.catch(() => {});
    return turn;
  }

  async #write(data: Uint8Array, eof: boolean, signal?: AbortSignal): Promise<void> {
    for (;;) {
      const known = this.#name !== '';
      if (!known) {
        this.#name = randomHex(16);
        this.#offset = 0;
      }
      let done = 0;
      try {
        do {
          const part = data.subarray(done, done + maxPart);
          const last = done + part.length === data.length;
          await this.#part(part, this.#offset + done, !last, eof && last, signal);
          done += part.length;
        } while (done < data.length);
        this.#offset += data.length;
        return;
      } catch (err) {
        const name = this.#name;
        this.#name = '';
        // Forgotten at once: nothing of it was taken, and all before was acknowledged.
        if (known && done === 0 && err instanceof ForgottenAtOnce) continue;
        // Other writers would wait for the rest of it.
        if (data.length > maxPart && !(err instanceof ForgottenAtOnce)) {
          const end = { process: { by: { case: 'id' as const, value: this.id } }, writer: name, writerOffset: 0n };
          this.link.later(ProcessService.method.write, end, this.headers);
        }
        throw err instanceof ForgottenAtOnce ? err.cause : err;
      }
    }
  }

  async #part(data: Uint8Array, offset: number, more: boolean, eof: boolean, signal?: AbortSignal): Promise<void> {
    let tries = 0;
    try {
      const res = await this.link.call(
        ProcessService.method.write,
        (attempt) => {
          tries = attempt;
          return { process: { by: { case: 'id' as const, value: this.id } }, data, eof, more, again: attempt > 1, writer: this.#name, writerOffset: toInt('offset', offset) };
        },
        { signal, headers: this.headers },
      );
      fromInt('the bytes of input', res.offset);
    } catch (err) {
      if (tries === 1 && hasCode(err, 'writer_forgotten')) throw new ForgottenAtOnce(err);
      // Closed by the very request whose answer was lost.
      if (this.link.maybeAgain(tries) && eof && data.length === 0 && hasCode(err, 'stdin_closed', 'exited')) return;
      throw err;
    }
  }
}

/** A request that was sent once was refused: nothing of it was taken. */
class ForgottenAtOnce extends Error {
  constructor(override readonly cause: TendError) {
    super(cause.message);
  }
}
