// What a way to a server can do: requests and answers as bytes. There are two, by
// node:http and by fetch; what they carry is for connect.ts.

import type { PortStream } from '#platform';

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

/** One request: a POST, if it does not say. */
export interface Request {
  method?: 'GET' | 'PUT';
  /** Below the URL of the server. */
  path: string;
  type: string;
  /** What is iterated over can be sent once, and not by a browser. */
  body: Uint8Array | AsyncIterable<Uint8Array>;
  headers?: Record<string, string>;
  /** Ends the request, and the answer in the midst of it: both throw its reason. */
  signal?: AbortSignal;
  /** The protocol that the connection is for after an answer of the status 101. Not in browsers. */
  upgrade?: string;
  /** A connection that no earlier call has used, where that can be had: for what may not be repeated. */
  fresh?: boolean;
}

/** The head of an answer, whose body is read as it comes. */
export interface Answer {
  status: number;
  /** The connection, after the status 101. */
  socket?: PortStream;
  /** Without parameters; "": none. */
  type: string;
  /** Of a redirect, which is not followed. */
  location?: string;
  /** The next piece; undefined: the whole body has come. A body that broke off is a ConnectionError. */
  read(): Promise<Uint8Array | undefined>;
  /** Gives up the rest, and the connection with it. */
  cancel(): void;
}

/** Sends requests to one server. */
export interface Transport {
  readonly url: string;
  /** A request may have been sent twice, though it was made once: browsers do that when a connection that they kept breaks. */
  readonly repeats: boolean;
  /** Resolves with the head of the answer. No connection: a ConnectionError. */
  send(request: Request): Promise<Answer>;
  /**
   * Makes later calls use new connections, where that can be had: a server that goes
   * away still answers on those that it has. Calls that run are not touched.
   */
  replace(): void;
  close(): void;
}

/** The headers of each request; a token that none can be is refused. */
export function commonHeaders(token: string | undefined, refuse: (why: string) => Error): Record<string, string> {
  const headers: Record<string, string> = { 'Connect-Protocol-Version': '1' };
  if (!token) return headers;
  if (/[^\x21-\x7e]/.test(token)) throw refuse('has a character that no token has');
  return { ...headers, Authorization: `Bearer ${token}` };
}

/** The type in a header Content-Type. */
export const bareType = (header: string | null | undefined): string => (header ?? '').split(';')[0]!;
