// The output and the facts of one process, each byte and each fact once,
// whatever happens to connections.

import type { MessageInitShape } from '@bufbuild/protobuf';
import { bytesOf } from '#platform';
import { protocolError } from './errors.js';
import { ProcessService, type ReadResponse, type RunResponse } from './gen/tend/v1/process_pb.js';
import type { SpecSchema } from './gen/tend/v1/spec_pb.js';
import type { Link } from './link.js';
import { fromExit, fromInt, fromStream, fromTimestamp, toReadRequest } from './messages.js';
import { closedError, Scope } from './scope.js';
import { ConnectionError } from './transport.js';
import type { OutputStream, ProcessEvent, ReadOptions } from './types.js';

/** Largest piece of output that a server may send, in bytes. */
const maxData = 4 << 20;

/**
 * The events of a process, as an AsyncIterable. Nothing is read ahead but what
 * the socket holds: while the consumer does not ask for more, the rest waits at
 * the server. A lost connection is made anew from the offsets reached.
 */
export class Reader implements AsyncIterableIterator<ProcessEvent> {
  readonly #id: string;
  readonly #options: ReadOptions;
  readonly #scope: Scope;
  readonly #events: AsyncGenerator<ProcessEvent, void, void>;
  #closed = false;

  // What was delivered.
  #begun = false;
  readonly #from = new Map<OutputStream, number>();
  readonly #eof = new Set<OutputStream>();
  #started = false;
  #exited = false;
  #treeGone = false;

  /** @internal Made by Process; with a spec, by run: it starts the process, too. */
  constructor(link: Link, id: string, options: ReadOptions, headers?: Record<string, string>, spec?: MessageInitShape<typeof SpecSchema>) {
    this.#id = id;
    this.#options = options;
    for (const stream of ['stdout', 'stderr', 'pty'] as const) this.#from.set(stream, options.from?.[stream] ?? 0);
    toReadRequest(id, options, this.#from); // what is wrong with them is said at once
    this.#scope = new Scope(options.signal);
    const forget = spec ? link.takeForgotten(headers) : [];
    const open = (signal: AbortSignal): AsyncGenerator<ReadResponse | RunResponse, void, void> => {
      const request = toReadRequest(this.#id, this.#options, this.#from);
      // Once it has begun, it may be gone again: it is not to be started a second time.
      if (!spec || this.#begun) return link.connect.stream(ProcessService.method.read, request, { signal, headers });
      return link.connect.stream(ProcessService.method.run, { spec, read: { ...request, process: undefined }, forget }, { signal, headers });
    };
    this.#events = link.follow(open, (m) => this.#take(m), () => this.#complete(), this.#scope.signal);
  }

  async next(): Promise<IteratorResult<ProcessEvent, undefined>> {
    if (this.#closed) return { done: true, value: undefined };
    try {
      const next = await this.#events.next();
      if (!next.done) return { done: false, value: next.value };
    } catch (err) {
      if (!this.#closed) {
        this.#scope.end();
        throw err;
      }
    }
    this.close();
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<ProcessEvent, undefined>> {
    this.close();
    return { done: true, value: undefined };
  }

  /** Ends it, also while next waits. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#scope.abort(closedError());
    this.#scope.end();
    void this.#events.return().catch(() => {});
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #take(m: ReadResponse | RunResponse): { value?: ProcessEvent; progress: boolean } {
    const event = m.event;
    if (event?.processId && event.processId !== this.#id) throw protocolError(`an event of the process ${event.processId} on a stream of ${this.#id}`);
    const fact = event?.fact;
    this.#begun = true;
    const time = fromTimestamp(event?.time);
    switch (fact?.case) {
      case 'hello':
        // Where "now" was is settled: a second try must not skip what came in between.
        for (const at of fact.value.from) {
          const stream = fromStream(at.stream);
          const offset = fromInt('an offset', at.offset);
          const want = this.#from.get(stream)!;
          if (want >= 0 && offset !== want) throw protocolError(`${stream} from ${offset} on when it was asked for ${want}`);
          this.#from.set(stream, offset);
        }
        return { progress: false };
      case 'goingAway':
        throw ConnectionError.of('away', 'the server went away again and again');
      case 'heartbeat':
        return { progress: true };
      case 'started':
        if (this.#started) break;
        this.#started = true;
        return { value: { kind: 'started', pid: fact.value.pid, time }, progress: true };
      case 'exited':
        if (this.#exited) break;
        this.#exited = true;
        return { value: { kind: 'exited', exit: fromExit(fact.value), time }, progress: true };
      case 'treeGone':
        if (this.#treeGone) break;
        this.#treeGone = true;
        return { value: { kind: 'treeGone', time }, progress: true };
      case 'eof': {
        const stream = fromStream(fact.value.stream);
        if (this.#eof.has(stream)) break;
        this.#eof.add(stream);
        return { value: { kind: 'eof', stream, offset: fromInt('an end', fact.value.offset) }, progress: true };
      }
      case 'gap': {
        const stream = fromStream(fact.value.stream);
        const [from, to] = [fromInt('a gap', fact.value.from), fromInt('a gap', fact.value.to)];
        this.#check(stream, from);
        if (to <= from) throw protocolError(`a gap from ${from} to ${to}`);
        this.#from.set(stream, to);
        return { value: { kind: 'gap', stream, from, to }, progress: true };
      }
      case 'output': {
        const stream = fromStream(fact.value.stream);
        const offset = fromInt('an offset', fact.value.offset);
        const { data } = fact.value;
        if (data.length > maxData) throw protocolError(`${data.length} bytes of output at once`);
        this.#check(stream, offset);
        if (data.length === 0) break;
        this.#from.set(stream, offset + data.length);
        return { value: { kind: 'output', stream, offset, data: bytesOf(data), time }, progress: true };
      }
    }
    return { progress: false };
  }

  /** Refuses what does not follow what was delivered: the stream is asked for from there on. */
  #check(stream: OutputStream, offset: number): void {
    const at = this.#from.get(stream)!;
    if (at < 0) return;
    if (this.#eof.has(stream)) throw protocolError(`output of ${stream} after its end`);
    if (offset !== at) throw protocolError(`output of ${stream} at ${offset} when ${at} was next`);
  }

  /** Nothing can follow, though the end of the stream was lost: there may be no server to ask for it. */
  #complete(): boolean {
    if (!this.#exited) return false;
    if (this.#options.streams?.length) return this.#options.streams.every((s) => this.#eof.has(s));
    return this.#eof.has('pty') || (this.#eof.has('stdout') && this.#eof.has('stderr'));
  }
}
