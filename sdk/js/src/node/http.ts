// The way to a server by node:http: to http, https and unix sockets. One HTTP/1.1
// connection carries one call or stream at a time.

import http from 'node:http';
import https from 'node:https';
import type net from 'node:net';
import { pipeline } from 'node:stream';
import { InvalidError, TendError } from '../errors.js';
import { parseTarget, type Target } from '../target.js';
import { bareType, commonHeaders, ConnectionError, type Answer, type Request, type Transport } from '../transport.js';

export class HttpTransport implements Transport {
  readonly repeats = false;
  readonly #target: Target;
  readonly #headers: Record<string, string>;
  readonly #tls: https.AgentOptions;
  #agent: http.Agent;
  #fresh: http.Agent;

  constructor(
    readonly url: string,
    token: string | undefined,
    tls: https.AgentOptions = {},
  ) {
    this.#target = parseTarget(url);
    this.#headers = { ...commonHeaders(token, (why) => new InvalidError('token', why)), 'User-Agent': 'tend-client-js' };
    this.#tls = tls;
    this.#agent = this.#newAgent(true);
    this.#fresh = this.#newAgent(false);
  }

  #newAgent(keepAlive: boolean): http.Agent {
    const options = { keepAlive, maxFreeSockets: 64, scheduling: 'lifo' as const };
    return this.#target.base.protocol === 'https:' ? new https.Agent({ ...this.#tls, ...options }) : new http.Agent(options);
  }

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

  send({ method, path, type, body, headers, signal, upgrade, fresh }: Request): Promise<Answer> {
    const { base, socketPath } = this.#target;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const req = (base.protocol === 'https:' ? https : http).request({
        agent: fresh ? this.#fresh : this.#agent,
        method: method ?? 'POST',
        ...(socketPath ? { socketPath, host: base.hostname } : { hostname: base.hostname.replace(/^\[|\]$/g, ''), port: base.port || undefined }),
        path: base.pathname + path,
        headers: { ...this.#headers, ...headers, ...(upgrade ? { Connection: 'Upgrade', Upgrade: upgrade } : { 'Content-Type': type }), ...(!upgrade && body instanceof Uint8Array && { 'Content-Length': body.length }) },
      });
      let res: http.IncomingMessage | undefined;
      let failed: unknown;
      const source = async function* (from: AsyncIterable<Uint8Array>) {
        try {
          yield* from;
        } catch (err) {
          failed = err;
          throw err;
        }
      };
      // An abort ends the call before its answer and in the midst of it.
      const abort = () => {
        req.destroy();
        res?.destroy(signal!.reason instanceof Error ? signal!.reason : undefined);
        reject(signal!.reason);
      };
      signal?.addEventListener('abort', abort, { once: true });
      req.on('close', () => signal?.removeEventListener('abort', abort));
      req.on('error', (err: NodeJS.ErrnoException & { syscall?: string }) => {
        if (failed) return reject(failed);
        const lost = new ConnectionError(err.message || err.code || 'the connection broke', { cause: err });
        if (err.syscall === 'connect' || err.syscall === 'getaddrinfo') lost.dial = err.code;
        if (err instanceof AggregateError) lost.dial = (err.errors[0] as NodeJS.ErrnoException | undefined)?.code; // of each address of a host name
        if (err.code?.startsWith('HPE_')) lost.foreign = true;
        reject(lost);
      });
      req.on('upgrade', (r, socket: net.Socket, head) => {
        socket.allowHalfOpen = true; // each side ends by itself
        socket.setTimeout(0).unshift(head);
        const answer: Answer = new HttpAnswer(r);
        answer.socket = socket;
        resolve(answer);
      });
      req.on('response', (r) => {
        res = r;
        if (signal?.aborted) r.destroy();
        resolve(new HttpAnswer(r));
      });
      if (body instanceof Uint8Array) req.end(body);
      else pipeline(source(body), req, () => {}); // what it says comes as an error of req, too
    });
  }
}

class HttpAnswer implements Answer {
  socket?: net.Socket;
  readonly #res: http.IncomingMessage;
  #error: Error | undefined;
  #wake: () => void = () => {};

  constructor(res: http.IncomingMessage) {
    this.#res = res;
    const wake = () => this.#wake();
    res.on('readable', wake).on('end', wake).on('close', wake);
    res.on('error', (err) => {
      this.#error = err;
      wake();
    });
  }

  get status(): number {
    return this.#res.statusCode ?? 0;
  }

  get type(): string {
    return bareType(this.#res.headers['content-type']);
  }

  get location(): string | undefined {
    return this.#res.headers.location;
  }

  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      const part = this.#res.read() as Buffer | null;
      if (part) return part;
      if (this.#error) throw lostBy(this.#error);
      if (this.#res.readableEnded && this.#res.complete) return undefined;
      if (this.#res.readableEnded || this.#res.destroyed) throw new ConnectionError('the answer broke off');
      await new Promise<void>((ok) => (this.#wake = ok));
    }
  }

  cancel(): void {
    if (!this.#res.readableEnded) this.#res.destroy();
  }
}

/** What breaks a body is a ConnectionError; an abort is itself. */
function lostBy(err: Error): Error {
  const { code } = err as NodeJS.ErrnoException;
  return typeof code === 'string' && !(err instanceof TendError) ? new ConnectionError(err.message || code, { cause: err }) : err;
}
