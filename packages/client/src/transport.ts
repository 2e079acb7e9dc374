// The Connect protocol (connectrpc.com/docs/protocol) over node:http: unary
// calls and server streams, as binary messages, to http, https and unix
// sockets. One HTTP/1.1 connection carries one call or stream at a time.

import http from 'node:http';
import https from 'node:https';
import { create, fromBinary, toBinary, type DescMessage, type DescMethod, type MessageInitShape, type MessageShape } from '@bufbuild/protobuf';
import { ErrorDetailSchema, ErrorKind, type ErrorDetail } from './gen/tend/v1/process_pb.js';
import { streamNames } from './messages.js';
import { AmbiguousError, clean, GapError, InvalidError, protocolError, RedirectError, StartError, TendError, type ErrorCode } from './errors.js';

/** Largest message that a server may send, in bytes. */
const maxMessage = 32 << 20;
/** Largest body of an error, in bytes. */
const maxErrorBody = 1 << 20;

/** Where a URL points to. */
export interface Target {
  base: URL;
  socketPath?: string;
}

const forms = 'write http://HOST:PORT, https://HOST or unix:///PATH';

/** Refuses what it would otherwise ignore, and repeats no password. */
export function parseTarget(raw: string): Target {
  const wrong = (why: string) => new InvalidError('url', why);
  if (raw.startsWith('unix:')) {
    const socketPath = raw.slice('unix:'.length).replace(/^\/\//, '');
    if (!socketPath) throw wrong('names no socket; write unix:///run/tend.sock');
    return { base: new URL('http://tend/'), socketPath };
  }
  let base: URL;
  try {
    base = new URL(raw);
  } catch {
    throw wrong(`cannot be read; ${forms}`);
  }
  if (base.username || base.password) throw wrong('has a user name or a password, and the server knows none; give the token apart from it (TEND_TOKEN, options.token)');
  if ((base.protocol !== 'http:' && base.protocol !== 'https:') || !base.hostname) throw wrong(`has no form that is known; ${forms}`);
  if (base.search || raw.includes('?')) throw wrong(`has a query, which has no meaning here; ${forms}`);
  if (base.hash || raw.includes('#')) throw wrong(`has a fragment, which has no meaning here; ${forms}`);
  if (!base.pathname.endsWith('/')) base.pathname += '/';
  return { base };
}

/** An error that another connection may not have. */
export class ConnectionError extends Error {
  /** The server said that it goes away, or was silent too long. */
  kind: 'lost' | 'away' | 'silent' = 'lost';
  /** No connection was made at all; the system's error. */
  dial?: string;
  /** What answered is no tend server. */
  foreign = false;

  static of(kind: 'away' | 'silent', message: string): ConnectionError {
    return Object.assign(new ConnectionError(message), { kind });
  }
}

/** Reports whether the same call may succeed on another connection. */
export function transient(err: unknown): err is ConnectionError {
  return err instanceof ConnectionError;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** Sent with the request. */
  headers?: Record<string, string>;
  /** A connection that no earlier call has used: for what may not be repeated. */
  fresh?: boolean;
}

/** Sends calls to one server. */
export class Transport {
  readonly #url: string;
  readonly #target: Target;
  readonly #headers: Record<string, string>;
  readonly #tls: https.AgentOptions;
  /** A tend server has answered there. */
  #known = false;
  #agent: http.Agent;
  #fresh: http.Agent;

  constructor(url: string, token: string | undefined, tls: https.AgentOptions = {}) {
    this.#url = url;
    this.#target = parseTarget(url);
    this.#headers = { 'Connect-Protocol-Version': '1', 'User-Agent': 'tend-client-js' };
    if (token) {
      if (/[^\x21-\x7e]/.test(token)) throw new InvalidError('token', 'has a character that no token has');
      this.#headers['Authorization'] = `Bearer ${token}`;
    }
    this.#tls = tls;
    this.#agent = this.#newAgent(true);
    this.#fresh = this.#newAgent(false);
  }

  #newAgent(keepAlive: boolean): http.Agent {
    const options = { keepAlive, maxFreeSockets: 64, scheduling: 'lifo' as const };
    return this.#target.base.protocol === 'https:' ? new https.Agent({ ...this.#tls, ...options }) : new http.Agent(options);
  }

  /**
   * Makes later calls use new connections: a server that goes away still
   * answers on those that it has. Calls that run are not touched.
   */
  replace(): void {
    const old = this.#agent;
    this.#agent = this.#newAgent(true);
    (old as http.Agent & { keepAlive: boolean }).keepAlive = false; // what is in use is not kept after it
    for (const sockets of Object.values(old.freeSockets)) for (const s of sockets ?? []) s.destroy();
  }

  close(): void {
    this.#agent.destroy();
    this.#fresh.destroy();
  }

  /** A call with one answer. */
  async unary<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, input: MessageInitShape<I>, options: CallOptions = {}): Promise<MessageShape<O>> {
    const body = encode(method.input, input);
    const res = await this.#send(method, 'application/proto', Buffer.from(body.buffer, body.byteOffset, body.byteLength), options);
    if (res.statusCode !== 200) throw await this.#refusal(res);
    this.#known = true;
    const type = String(res.headers['content-type']).split(';')[0];
    if (type !== 'application/proto') {
      res.destroy();
      throw protocolError(`an answer of the type ${type}`);
    }
    return decode(method.output, await readAll(res, maxMessage));
  }

  /**
   * A call with a stream of answers, and one message or several. It ends when the server says so; a stream
   * that breaks throws a ConnectionError. Nothing is read ahead of the consumer
   * but what the socket holds.
   */
  async *stream<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, input: MessageInitShape<I> | MessageInitShape<I>[], options: CallOptions = {}): AsyncGenerator<MessageShape<O>, void, void> {
    const parts: Uint8Array[] = [];
    for (const one of Array.isArray(input) ? input : [input]) {
      const message = encode(method.input, one);
      const head = Buffer.alloc(5);
      head.writeUInt32BE(message.length, 1);
      parts.push(head, message);
    }
    const res = await this.#send(method, 'application/connect+proto', Buffer.concat(parts), options);
    let ended = false;
    try {
      if (res.statusCode !== 200) throw await this.#refusal(res);
      const type = String(res.headers['content-type']).split(';')[0];
      if (type !== 'application/connect+proto') throw protocolError(`a stream of the type ${type}`);
      for await (const { flags, data } of envelopes(res)) {
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
      throw new ConnectionError('the stream broke before its end');
    } finally {
      if (ended) spare(res);
      else if (!res.complete) res.destroy();
    }
  }

  #send(method: DescMethod, type: string, body: Buffer, options: CallOptions): Promise<http.IncomingMessage> {
    const { base, socketPath } = this.#target;
    return new Promise((resolve, reject) => {
      const { signal } = options;
      if (signal?.aborted) return reject(signal.reason);
      const req = (base.protocol === 'https:' ? https : http).request({
        agent: options.fresh ? this.#fresh : this.#agent,
        method: 'POST',
        ...(socketPath ? { socketPath, host: base.hostname } : { hostname: base.hostname.replace(/^\[|\]$/g, ''), port: base.port || undefined }),
        path: `${base.pathname}${method.parent.typeName}/${method.name}`,
        headers: { ...this.#headers, ...options.headers, 'Content-Type': type, 'Content-Length': body.length },
      });
      let res: http.IncomingMessage | undefined;
      // An abort ends the call before its answer and in the midst of it.
      const abort = () => {
        req.destroy();
        res?.destroy(signal!.reason instanceof Error ? signal!.reason : undefined);
        reject(signal!.reason);
      };
      signal?.addEventListener('abort', abort, { once: true });
      req.on('close', () => signal?.removeEventListener('abort', abort));
      req.on('error', (err: NodeJS.ErrnoException & { syscall?: string }) => {
        const lost = new ConnectionError(err.message || err.code || 'the connection broke', { cause: err });
        if (err.syscall === 'connect' || err.syscall === 'getaddrinfo') lost.dial = err.code;
        if (err instanceof AggregateError) lost.dial = (err.errors[0] as NodeJS.ErrnoException | undefined)?.code; // of each address of a host name
        if (err.code?.startsWith('HPE_')) lost.foreign = true;
        reject(lost);
      });
      req.on('response', (r) => {
        res = r;
        if (signal?.aborted) r.destroy();
        resolve(r);
      });
      req.end(body);
    });
  }

  /** The error of an answer that is no success. */
  async #refusal(res: http.IncomingMessage): Promise<Error> {
    const status = res.statusCode ?? 0;
    const location = res.headers.location;
    if (location && status >= 300 && status < 400) {
      res.resume();
      return new RedirectError(this.#url, clean(location));
    }
    const body = await readAll(res, maxErrorBody);
    const error = parseJSON(body);
    if (typeof error?.code === 'string') return wireError(error);
    // Not an answer of the API: a proxy that cannot reach its server, or something else.
    const text = `${this.#url} answers with HTTP status ${status}`;
    switch (status) {
      case 401:
      case 403:
        return new TendError('permission', `the server refuses the token, or wants one: ${text}`);
      case 404:
      case 405:
        if (this.#known) return unsupported(text);
        break;
      case 408:
      case 429:
      case 502:
      case 503:
      case 504:
        return new ConnectionError(text);
    }
    return new TendError('protocol', `${text}; it is no tend server`);
  }
}

function unsupported(text: string): TendError {
  return new TendError('unsupported', `the server does not know this call: it is of a former version, and tend upgrade replaces it (${text})`);
}

/** What no message can hold, such as a number for a text, is a mistake of the caller's. */
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

async function readAll(res: http.IncomingMessage, max: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let n = 0;
  for await (const part of chunks(res)) {
    n += part.length;
    if (n > max) {
      res.destroy();
      throw protocolError(`more than ${max} bytes`);
    }
    parts.push(part);
  }
  return Buffer.concat(parts, n);
}

/** Leaves the connection to the next call: nothing but the end of the body follows, and nobody waits for that. */
function spare(res: http.IncomingMessage): void {
  if (res.complete) return;
  const late = setTimeout(() => res.destroy(), 1000).unref();
  res.on('error', () => {}).on('close', () => clearTimeout(late));
  res.resume();
}

/** The body of an answer; what breaks it is a ConnectionError, an abort is itself. */
async function* chunks(res: http.IncomingMessage): AsyncGenerator<Buffer, void, void> {
  try {
    for await (const part of res.iterator({ destroyOnReturn: false })) yield part as Buffer;
  } catch (err) {
    const code = (err as NodeJS.ErrnoException).code;
    if (typeof code === 'string' && !(err instanceof TendError)) throw new ConnectionError((err as Error).message || code, { cause: err });
    throw err;
  }
  if (!res.complete) throw new ConnectionError('the answer broke off');
}

/** Splits a stream's body: one byte of flags, four of length, the data. */
async function* envelopes(res: http.IncomingMessage): AsyncGenerator<{ flags: number; data: Buffer }, void, void> {
  let held: Buffer[] = [];
  let have = 0;
  let want = 5;
  let flags = -1;
  for await (const part of chunks(res)) {
    held.push(part);
    have += part.length;
    while (have >= want) {
      const all = held.length === 1 ? held[0]! : Buffer.concat(held, have);
      const head = all.subarray(0, want);
      const rest = all.subarray(want);
      held = rest.length ? [rest] : [];
      have = rest.length;
      if (flags < 0) {
        flags = head[0]!;
        want = head.readUInt32BE(1);
        if (want > maxMessage) throw protocolError(`a message of ${want} bytes`);
        if (want > 0) continue;
      }
      yield { flags, data: want === 0 ? Buffer.alloc(0) : head };
      flags = -1;
      want = 5;
    }
  }
  if (have > 0 || flags >= 0) throw new ConnectionError('the stream broke in the midst of a message');
}

interface WireError {
  code?: unknown;
  message?: unknown;
  details?: unknown;
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
function parseJSON(data: Buffer): any {
  try {
    const value = JSON.parse(data.toString('utf8'));
    return value && typeof value === 'object' ? value : undefined;
  } catch {
    return undefined;
  }
}

/** An error that the server itself sent. It is final, unless it is "unavailable". */
function wireError(e: WireError): Error {
  const message = clean(typeof e.message === 'string' ? e.message : '');
  if (e.code === 'unavailable') return new ConnectionError(message || 'the server is unavailable');
  for (const d of Array.isArray(e.details) ? e.details : []) {
    if (d?.type !== 'tend.v1.ErrorDetail' || typeof d.value !== 'string') continue;
    try {
      const known = fromDetail(fromBinary(ErrorDetailSchema, Buffer.from(d.value, 'base64')), message);
      if (known) return known;
    } catch {
      // A detail that cannot be read: the code has to do.
    }
  }
  switch (e.code) {
    case 'unauthenticated':
    case 'permission_denied':
      return new TendError('permission', `the server refuses the token, or wants one: ${message}`);
    case 'unimplemented':
      return unsupported(message || 'unimplemented');
    case 'not_found':
      return new TendError('not_found', message);
    case 'invalid_argument':
      return new TendError('invalid', message);
    case 'resource_exhausted':
      return new TendError('limit', message);
  }
  return new TendError('internal', message || String(e.code));
}

const kinds: { [kind in ErrorKind]?: ErrorCode } = {
  [ErrorKind.NOT_FOUND]: 'not_found',
  [ErrorKind.AMBIGUOUS]: 'ambiguous',
  [ErrorKind.EXISTS]: 'exists',
  [ErrorKind.EXITED]: 'exited',
  [ErrorKind.RUNNING]: 'running',
  [ErrorKind.LAGGED]: 'lagged',
  [ErrorKind.STDIN_CLOSED]: 'stdin_closed',
  [ErrorKind.PTY]: 'pty',
  [ErrorKind.NO_PTY]: 'no_pty',
  [ErrorKind.OFFSET]: 'offset',
  [ErrorKind.UNAVAILABLE]: 'unavailable',
  [ErrorKind.UNSUPPORTED]: 'unsupported',
  [ErrorKind.LIMIT]: 'limit',
  [ErrorKind.PERMISSION]: 'permission',
  [ErrorKind.INVALID]: 'invalid',
  [ErrorKind.START]: 'start',
  [ErrorKind.GAP]: 'gap',
  [ErrorKind.WRITER_FORGOTTEN]: 'writer_forgotten',
  [ErrorKind.DAMAGED]: 'damaged',
  [ErrorKind.SANDBOX_STOPPED]: 'sandbox_stopped',
  [ErrorKind.SANDBOX_PAUSED]: 'sandbox_paused',
  [ErrorKind.IN_USE]: 'in_use',
};

// In the order of their numbers.
const startReasons = ['other', 'not_found', 'permission', 'format', 'bad_dir', 'bad_user', 'too_long', 'resources', 'limits', 'pty', 'other'] as const;

function fromDetail(d: ErrorDetail, message: string): Error | undefined {
  const code = kinds[d.kind];
  switch (code) {
    case undefined:
      return undefined;
    case 'invalid':
      return new InvalidError(clean(d.field), clean(d.reason));
    case 'start':
      return new StartError(message, startReasons[d.startReason] ?? 'other', clean(d.what), clean(d.systemError), d.errno);
    case 'ambiguous':
      return new AmbiguousError(message, d.ids.map(clean));
    case 'gap':
      return new GapError(streamNames[d.gap?.stream ?? 0] ?? 'a stream', Number(d.gap?.from ?? 0), Number(d.gap?.to ?? 0));
    case 'unavailable':
      return new ConnectionError(message);
  }
  return new TendError(code, message);
}
