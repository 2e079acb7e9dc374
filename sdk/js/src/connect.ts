// The Connect protocol (connectrpc.com/docs/protocol): unary calls and server
// streams, as binary messages. It is the same whatever carries the bytes.

import { create, fromBinary, toBinary, type DescMessage, type DescMethod, type MessageInitShape, type MessageShape } from '@bufbuild/protobuf';
import type { PortStream } from '#platform';
import { join } from './bytes.js';
import { InvalidError, protocolError, TendError } from './errors.js';
import { parseJSON, redirect, refusal, wireError } from './refusal.js';
import { ConnectionError, type Answer, type Request, type Transport } from './transport.js';

/** Largest message that a server may send, in bytes. */
const maxMessage = 32 << 20;
/** Largest body of an error, in bytes. */
const maxErrorBody = 1 << 20;
/** Milliseconds in which the body of a stream ends after its last message. */
const late = 1000;

export interface CallOptions {
  signal?: AbortSignal;
  /** Sent with the request. */
  headers?: Record<string, string>;
  /** A new connection, for calls that may not be repeated. */
  fresh?: boolean;
}

/** Calls to one server. */
export class Connect {
  /** A tend server has answered there. */
  #known = false;

  constructor(readonly transport: Transport) {}

  /** A call with one answer. */
  async unary<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, input: MessageInitShape<I>, options: CallOptions = {}): Promise<MessageShape<O>> {
    const answer = await this.#send(method, 'application/proto', encode(method.input, input), options);
    this.#known = true;
    return decode(method.output, await readAll(answer, maxMessage));
  }

  /**
   * A call with a stream of answers, and one message or several. It ends when the server
   * says so; a stream that breaks throws a ConnectionError. Only the transport's buffer is
   * read ahead of the consumer.
   */
  async *stream<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, input: MessageInitShape<I> | MessageInitShape<I>[], options: CallOptions = {}): AsyncGenerator<MessageShape<O>, void, void> {
    const messages = (Array.isArray(input) ? input : [input]).map((one) => encode(method.input, one));
    const answer = await this.#send(method, 'application/connect+proto', envelopes(messages), options);
    let ended = false;
    try {
      for (const body = new Envelopes(); ; ) {
        const next = body.next();
        if (!next) {
          const part = await answer.read();
          if (!part) throw new ConnectionError(body.torn ? 'the stream broke in the midst of a message' : 'the stream broke before its end');
          body.add(part);
          continue;
        }
        const { flags, data } = next;
        if (flags & 1) throw protocolError('a compressed message that nobody asked for');
        if (!(flags & 2)) {
          yield decode(method.output, data);
          continue;
        }
        const end = parseJSON(data);
        ended = true;
        if (end?.error) throw wireError(end.error);
        return;
      }
    } finally {
      if (ended) spare(answer);
      else answer.cancel();
    }
  }

  /** The files by plain HTTP, beside the protocol: the body of an answer is as it comes. */
  plain(method: 'GET' | 'PUT', path: string, type: string, body: Uint8Array | AsyncIterable<Uint8Array>, options: CallOptions): Promise<Answer> {
    return this.#checked({ method, path: `tend.v1.FileService/${path}`, type, body, ...options });
  }

  /** A connection to a port of a sandbox. */
  async dial(sandbox: string, port: number, signal: AbortSignal): Promise<PortStream> {
    const path = `tend.v1.SandboxService/Dial?${new URLSearchParams({ sandbox, port: String(port) })}`;
    const { socket } = await this.#checked({ method: 'GET', path, type: '', body: new Uint8Array(), upgrade: 'tend-port', fresh: true, signal });
    if (!socket) throw protocolError('no connection to a port');
    return socket;
  }

  #send(method: DescMethod, type: string, body: Uint8Array, options: CallOptions): Promise<Answer> {
    return this.#checked({ path: `${method.parent.typeName}/${method.name}`, type, body, ...options });
  }

  /** Checks that an answer is a success and has the type of the request, if it has content. */
  async #checked(request: Request): Promise<Answer> {
    const { type } = request;
    const answer = await this.transport.send(request);
    if ((answer.status === 200 && answer.type === type) || answer.status === 204 || answer.socket) return answer;
    try {
      if (answer.location !== undefined && answer.status >= 300 && answer.status < 400) throw redirect(this.transport.url, answer.location);
      if (answer.status !== 200) throw refusal(this.transport.url, answer.status, await readAll(answer, maxErrorBody), this.#known);
      throw protocolError(`an answer of the type ${answer.type}`);
    } finally {
      answer.cancel(); // without effect on one that was read to its end
    }
  }
}

/** A value that no message can hold, such as a number for a text, is a mistake of the caller. */
function encode<I extends DescMessage>(schema: I, input: MessageInitShape<I>): Uint8Array {
  try {
    return toBinary(schema, create(schema, input));
  } catch (err) {
    if (err instanceof TendError) throw err;
    throw new InvalidError('request', `cannot be sent: ${(err as Error).message}`);
  }
}

function decode<O extends DescMessage>(schema: O, data: Uint8Array): MessageShape<O> {
  try {
    return fromBinary(schema, data);
  } catch (err) {
    throw protocolError(`a message that cannot be read (${(err as Error).message})`);
  }
}

async function readAll(answer: Answer, max: number): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let n = 0;
  for (let part; (part = await answer.read()); ) {
    n += part.length;
    if (n > max) {
      answer.cancel();
      throw protocolError(`more than ${max} bytes`);
    }
    parts.push(part);
  }
  return join(parts, n);
}

/** Leaves the connection to the next call: only the end of the body follows, and nothing waits for it. */
function spare(answer: Answer): void {
  const timer = setTimeout(() => answer.cancel(), late) as { unref?(): void } | number;
  if (typeof timer === 'object') timer.unref?.(); // it keeps no program of Node.js alive
  const rest = async () => {
    while (await answer.read());
  };
  void rest().then(() => clearTimeout(timer as number), () => clearTimeout(timer as number));
}

/** The body of a stream of requests. */
function envelopes(messages: Uint8Array[]): Uint8Array {
  const body = new Uint8Array(messages.reduce((n, m) => n + 5 + m.length, 0));
  const view = new DataView(body.buffer);
  let at = 0;
  for (const m of messages) {
    view.setUint32(at + 1, m.length);
    body.set(m, at + 5);
    at += 5 + m.length;
  }
  return body;
}

/** Splits the body of a stream: one byte of flags, four of length, the data. */
class Envelopes {
  #parts: Uint8Array[] = [];
  #have = 0;

  add(part: Uint8Array): void {
    this.#parts.push(part);
    this.#have += part.length;
  }

  /** Whether there are bytes of an incomplete message. */
  get torn(): boolean {
    return this.#have > 0;
  }

  /** The next one; undefined: it is incomplete. */
  next(): { flags: number; data: Uint8Array } | undefined {
    if (this.#have < 5) return undefined;
    let first = this.#parts[0]!;
    if (first.length < 5) first = this.#joined();
    const length = new DataView(first.buffer, first.byteOffset).getUint32(1);
    if (length > maxMessage) throw protocolError(`a message of ${length} bytes`);
    const size = 5 + length;
    if (this.#have < size) return undefined;
    if (first.length < size) first = this.#joined();
    this.#have -= size;
    if (first.length > size) this.#parts[0] = first.subarray(size);
    else this.#parts.shift();
    return { flags: first[0]!, data: first.subarray(5, size) };
  }

  /** Everything as one part. */
  #joined(): Uint8Array {
    this.#parts = [join(this.#parts, this.#have)];
    return this.#parts[0]!;
  }
}
