// The way to one server: calls that are repeated while their connection is lost.

import type { DescMessage, DescMethod, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import type { CallOptions, Connect } from './connect.js';
import { TendError } from './errors.js';
import { AdminService } from './gen/tend/v1/admin_pb.js';
import { ProcessService } from './gen/tend/v1/process_pb.js';
import { Attempts, type RetryOptions } from './retry.js';
import { closedError, pause, Scope } from './scope.js';
import { ConnectionError, transient, type Answer } from './transport.js';

/** Milliseconds for the hello of a server. */
const helloTimeout = 15_000;
/** Milliseconds for a call in the background. */
const moment = 5_000;
/** Milliseconds in which the next run may also remove the process of the last one. */
const aWhile = 100;
/** Most processes that one run removes. */
const mostForgotten = 100;

export interface LinkOptions {
  retry?: RetryOptions;
  silence?: number;
  log?: (message: string) => void;
}

export class Link {
  readonly closed = new AbortController();
  /** Milliseconds after which a silent server is given up. */
  readonly silence: number;
  /** As the last hello said: the listening sockets outlive the server; it knows writers by name. */
  #held = false;
  /** What the server supports; with sandboxes also the header that names one. */
  #abilities = { sandboxes: false, services: false, grepOptions: false, runs: false };
  /** Finished processes that are no longer needed, and their place. */
  #forgotten: { id: string; headers?: Record<string, string> }[] = [];
  #forgetting: ReturnType<typeof setTimeout> | undefined;
  /** What close waits for. */
  readonly #later = new Set<Promise<unknown>>();
  version = '';
  instance = '';

  constructor(
    readonly url: string,
    readonly connect: Connect,
    private readonly options: LinkOptions,
  ) {
    this.silence = options.silence && options.silence > 0 ? options.silence : 45_000;
  }

  async hello(signal?: AbortSignal): Promise<void> {
    const res = await this.#attempt(ProcessService.method.hello, {}, { signal }, Math.min(helloTimeout, this.silence));
    this.#held = res.listenersHeld;
    this.#abilities = res;
    this.version = res.version;
    this.instance = res.instance;
  }

  /** Fails on an older server, which would ignore what it does not know. */
  async needs(ability: 'sandboxes' | 'services' | 'grepOptions', what: string, signal?: AbortSignal): Promise<void> {
    // It may have been replaced since it said what it knows.
    if (!this.#abilities[ability]) this.#abilities = await this.call(ProcessService.method.hello, {}, { signal });
    if (!this.#abilities[ability]) throw new TendError('unsupported', `${this.url} has no ${what}, or is of a former version: tend upgrade replaces it`);
  }

  /** A command is one call. */
  get runs(): boolean {
    return this.#abilities.runs;
  }

  /** The server was replaced by an older one. */
  lacksRuns(): void {
    this.#abilities.runs = false;
  }

  /** A server without sandboxes would act on the machine instead. */
  needsSandboxes(signal?: AbortSignal): Promise<void> {
    return this.needs('sandboxes', 'sandboxes', signal);
  }

  /** A request whose answer was this one may have been made before, though it was sent for the nth time. */
  maybeAgain(attempts: number): boolean {
    return attempts > 1 || this.connect.transport.repeats;
  }

  /** The URL under which the server says that it serves. */
  async address(signal?: AbortSignal): Promise<string> {
    return (await this.call(AdminService.method.status, {}, { signal })).url;
  }

  attempts(): Attempts {
    return new Attempts(this.options.retry ?? {});
  }

  /**
   * Decides after the error of an attempt: it waits until the next attempt, or throws the
   * caller's error. No other place decides this.
   */
  async again(err: unknown, attempts: Attempts, signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw signal.reason;
    if (!transient(err)) throw err;
    if (err.kind !== 'lost') this.connect.transport.replace();
    const wait = attempts.next(this.#held || err.kind === 'away');
    if (wait === undefined) throw this.final(err);
    this.options.log?.(`try again in ${Math.round(wait)} ms: ${err.message}`);
    await pause(wait, signal);
  }

  /** The error of a connection, as callers get it. */
  final(err: unknown): unknown {
    if (!(err instanceof ConnectionError)) return err;
    switch (err.dial) {
      case 'ENOENT':
      case 'ECONNREFUSED':
      case 'ENOTDIR':
        return new TendError('no_daemon', `${this.url}: no daemon listens there (${err.message}); start one: tend serve`, { cause: err });
      case 'EACCES':
        return new TendError('permission', `${this.url}: the socket admits the user of the server and root alone`, { cause: err });
    }
    if (err.foreign) return new TendError('protocol', `${this.url} answers, but it is no tend server (${err.message})`, { cause: err });
    return new TendError('unavailable', `${this.url}: ${err.message}`, { cause: err });
  }

  /**
   * A call that is safe to repeat. Each attempt lasts at most `silence`; if the server
   * then answers a hello, it is alive and the call takes that long. last: an error after
   * which there is no further attempt. input may change from one attempt to the next.
   */
  async call<I extends DescMessage, O extends DescMessage>(
    method: DescMethod & { input: I; output: O },
    input: MessageInitShape<I> | ((attempt: number) => MessageInitShape<I>),
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const scope = new Scope(options.signal, this.closed.signal);
    const attempts = this.attempts();
    try {
      for (let n = 1; ; n++) {
        const message = typeof input === 'function' ? (input as (attempt: number) => MessageInitShape<I>)(n) : input;
        try {
          return await this.#attempt(method, message, { ...options, signal: scope.signal }, this.silence);
        } catch (err) {
          if (err instanceof ConnectionError && err.kind === 'silent' && !scope.signal.aborted) {
            // The other idle connections may be as dead as this one.
            this.connect.transport.replace();
            if (await this.#answers(scope.signal)) {
              attempts.progress();
              continue;
            }
          }
          await this.again(err, attempts, scope.signal);
        }
      }
    } finally {
      scope.end();
    }
  }

  /** A call that may have an effect each time: it is made only once. */
  async once<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, input: MessageInitShape<I>, options: CallOptions = {}): Promise<MessageShape<O>> {
    const scope = new Scope(options.signal, this.closed.signal);
    try {
      return await this.connect.unary(method, input, { ...options, fresh: true, signal: scope.signal });
    } catch (err) {
      throw this.final(err);
    } finally {
      scope.end();
    }
  }

  async #answers(signal: AbortSignal): Promise<boolean> {
    try {
      await this.hello(signal);
      return true;
    } catch {
      return false;
    }
  }

  async #attempt<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, input: MessageInitShape<I>, options: CallOptions, ms: number): Promise<MessageShape<O>> {
    const scope = new Scope(options.signal);
    const timer = setTimeout(() => scope.abort(ConnectionError.of('silent', 'the server has gone silent')), ms);
    try {
      return await this.connect.unary(method, input, { ...options, signal: scope.signal });
    } finally {
      clearTimeout(timer);
      scope.end();
    }
  }

  /** Repeats what can be done again as a whole, while its connection is lost. */
  async whole<T>(signal: AbortSignal | undefined, attempt: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const scope = new Scope(signal, this.closed.signal);
    const attempts = this.attempts();
    try {
      for (;;) {
        try {
          return await attempt(scope.signal);
        } catch (err) {
          await this.again(err, attempts, scope.signal);
        }
      }
    } finally {
      scope.end();
    }
  }

  /** The body of an answer. A server that says nothing for `silence` is lost. */
  async *body(answer: Answer): AsyncGenerator<Uint8Array, void, void> {
    for (;;) {
      const timer = setTimeout(() => answer.cancel(), this.silence);
      let part: Uint8Array | undefined;
      try {
        part = await answer.read();
      } finally {
        clearTimeout(timer);
      }
      if (!part) return;
      yield part;
    }
  }

  /**
   * Streams, one after the other, until one ends as it should. open makes the
   * next from where the last one came to; take turns its messages into what is
   * delivered and says whether that is progress. A server that says nothing for
   * `silence` is lost; while the consumer is slow, nothing is asked of it.
   */
  async *follow<M, O>(
    open: (signal: AbortSignal) => AsyncGenerator<M, void, void>,
    take: (message: M) => { value?: O; progress: boolean },
    complete: () => boolean,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<O, void, void> {
    const attempts = this.attempts();
    const life = new Scope(signal, this.closed.signal);
    try {
      for (;;) {
        const scope = new Scope(life.signal);
        const stream = open(scope.signal);
        try {
          for (;;) {
            const timer = setTimeout(() => scope.abort(ConnectionError.of('silent', 'the server has gone silent')), this.silence);
            let next: IteratorResult<M, void>;
            try {
              next = await stream.next();
            } finally {
              clearTimeout(timer);
            }
            if (next.done) return;
            const { value, progress } = take(next.value);
            if (progress) attempts.progress();
            if (value !== undefined) yield value;
          }
        } catch (err) {
          if (!life.signal.aborted && transient(err) && complete()) return; // whatever became of the connection
          await this.again(err, attempts, life.signal);
        } finally {
          scope.end();
          await stream.return().catch(() => {});
        }
      }
    } finally {
      life.end();
    }
  }

  /** A call in the background that need not succeed. It is made once; close waits a moment for it. */
  later<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, input: MessageInitShape<I>, headers?: Record<string, string>): void {
    const call: Promise<unknown> = this.#attempt(method, input, { headers }, moment)
      .catch(() => {})
      .finally(() => this.#later.delete(call));
    this.#later.add(call);
  }

  /**
   * Removes a finished process. If it can wait, the next run of the same place takes it
   * along, if there is one at once: a call of its own costs as much as a run. If that
   * fails, the process is kept until its time is over.
   */
  forget(id: string, headers: Record<string, string> | undefined, canWait: boolean): void {
    this.#forgotten.push({ id, headers });
    if (!canWait || !this.runs) return this.#forget();
    this.#forgetting ??= setTimeout(() => this.#forget(), aWhile);
  }

  #forget(): void {
    clearTimeout(this.#forgetting);
    this.#forgetting = undefined;
    for (const { id, headers } of this.#forgotten.splice(0)) this.later(ProcessService.method.remove, { process: { by: { case: 'id', value: id } } }, headers);
  }

  /** What the next run of a place also removes. */
  takeForgotten(headers?: Record<string, string>): string[] {
    const taken: string[] = [];
    this.#forgotten = this.#forgotten.filter((one) => one.headers !== headers || taken.length === mostForgotten || !taken.push(one.id));
    return taken;
  }

  close(): void {
    this.#forget();
    this.closed.abort(closedError());
    if (this.#later.size === 0) return this.connect.transport.close();
    void Promise.all(this.#later).then(() => this.connect.transport.close());
  }
}
