// The way to a server by fetch: in pages, workers, and wherever else there is no
// node:http. Unix sockets are out of its reach.

import { InvalidError, TendError } from '../errors.js';
import { parseTarget } from '../target.js';
import { bareType, commonHeaders, ConnectionError, type Answer, type Request, type Transport } from '../transport.js';

/** What a FetchTransport says of a request. */
export interface FetchInit extends RequestInit {
  headers: Record<string, string>;
  body: Uint8Array<ArrayBuffer> | null;
}

export class FetchTransport implements Transport {
  // A browser sends a POST again, of itself, when the connection that it kept for it breaks.
  readonly repeats = true;
  readonly #base: URL;
  readonly #headers: Record<string, string>;
  /** A server has answered. */
  #known = false;

  /** call: fetch, or what sends requests in its place. */
  constructor(
    readonly url: string,
    token?: string,
    private readonly call: (url: URL, init: FetchInit) => Promise<Response> = (url, init) => fetch(url, init),
  ) {
    const { base, socketPath } = parseTarget(url, globalThis.location?.href);
    if (socketPath !== undefined) throw new TendError('unsupported', 'a unix socket cannot be reached from a browser; give the http or https URL of tend, or of what passes requests on to it');
    this.#base = base;
    this.#headers = commonHeaders(token, (why) => new InvalidError('token', why));
  }

  /** A browser keeps its connections as it likes. */
  replace(): void {}
  close(): void {}

  async send({ method, path, type, body, headers, signal, upgrade }: Request): Promise<Answer> {
    signal?.throwIfAborted();
    if (upgrade) throw new TendError('unsupported', 'a browser has no connections to ports; use portUrl with fetch or WebSocket');
    let res: Response;
    try {
      res = await this.call(new URL(path, this.#base), {
        method: method ?? 'POST',
        headers: { ...this.#headers, ...headers, 'Content-Type': type },
        body: method === 'GET' ? null : (body as Uint8Array<ArrayBuffer>),
        signal: signal ?? null,
        redirect: 'manual', // the token would go along
        cache: 'no-store',
      });
    } catch (err) {
      if (signal?.aborted) throw signal.reason;
      throw await this.#failure(err as Error, signal);
    }
    this.#known = true;
    const reader = res.body?.getReader();
    return {
      status: res.type === 'opaqueredirect' ? 302 : res.status,
      type: bareType(res.headers.get('content-type')),
      location: res.type === 'opaqueredirect' ? 'another address' : (res.headers.get('location') ?? undefined),
      async read() {
        try {
          return reader && (await reader.read()).value;
        } catch (err) {
          if (signal?.aborted) throw signal.reason;
          throw new ConnectionError(`the answer broke off: ${(err as Error).message}`, { cause: err });
        }
      },
      cancel: () => void reader?.cancel().catch(() => {}),
    };
  }

  /** Why there was no answer. A browser tells its pages little. */
  async #failure(err: Error, signal?: AbortSignal): Promise<Error> {
    const lost = new ConnectionError(err.message || 'the connection broke', { cause: err });
    // Of Node.js and its like, which say why.
    const cause = err.cause as { code?: string; syscall?: string; message?: string } | undefined;
    if (cause?.syscall === 'connect' || cause?.syscall === 'getaddrinfo') lost.dial = cause.code;
    if (cause?.code?.startsWith('HPE_')) lost.foreign = true;
    const origin = globalThis.location?.origin;
    if (this.#known || !origin || origin === this.#base.origin) return lost;
    // A request whose answer no page may read shows that somebody is there.
    const there = await fetch(this.#base, { mode: 'no-cors', cache: 'no-store', signal: signal ?? null }).then(() => true, () => false);
    if (signal?.aborted) return signal.reason as Error;
    if (!there) return lost;
    return new TendError('permission', `${this.url} answers, but the browser keeps it from this page, which is of ${origin}: have the page and tend served under one origin, by a proxy that passes /tend.v1.* on to tend`);
  }
}
