// What the client takes from a browser. node/platform.ts has the same from Node.js.

import { InvalidError, TendError } from '../errors.js';
import type { Transport } from '../transport.js';
import { FetchTransport } from './fetch.js';

/** Bytes, as callers get them. */
export type Bytes = Uint8Array;
/** The output of a process as a stream. */
export type OutputReadable = ReadableStream<Uint8Array>;
/** The input of a process as a stream. */
export type InputWritable = WritableStream<Uint8Array | string>;

/** A browser has no TCP connections. */
export type PortStream = never;

/** Options of Client.connect that a browser alone has: none. */
export interface PlatformOptions {
  /** The browser decides whom it trusts: anything here is an error with the code `unsupported`. */
  tls?: never;
}

/** @internal */
export function newTransport(url: string, token: string | undefined, options: PlatformOptions): Transport {
  if (options.tls) throw new TendError('unsupported', 'tls is not for a browser, which decides itself whom it trusts');
  return new FetchTransport(url, token);
}

/** @internal A page calls the server that it came from. */
export function defaults(): Promise<{ urls: string[]; token?: string }> {
  const origin = globalThis.location?.origin;
  if (!origin || origin === 'null') throw new InvalidError('url', 'is missing, and this program has no page whose server could be meant');
  return Promise.resolve({ urls: [origin] });
}

/** @internal What relative paths are below: nothing. */
export function currentDir(): string {
  throw new InvalidError('dir', 'is missing; a browser has no current directory');
}

/** @internal The same bytes, not a copy. */
export function bytesOf(data: Uint8Array): Bytes {
  return data;
}

/** @internal next: undefined is the end. */
export function readable(next: () => Promise<Bytes | undefined>, close: () => void): OutputReadable {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const part = await next();
        if (part) controller.enqueue(part);
        else controller.close();
      },
      cancel: close,
    },
    { highWaterMark: 0 }, // nothing is read ahead
  );
}

/** @internal */
export function writable(write: (data: Uint8Array) => Promise<void>, close: () => Promise<void>): InputWritable {
  const text = new TextEncoder();
  return new WritableStream<Uint8Array | string>({
    write: (part) => write(typeof part === 'string' ? text.encode(part) : part),
    close,
  });
}

/** @internal A browser has no directories. */
export function packDir(_local: string): Promise<AsyncIterable<Uint8Array>> {
  return Promise.reject(new TendError('unsupported', 'a browser has no directories to copy from or to'));
}

/** @internal */
export const unpackDir = (_archive: AsyncIterable<Uint8Array>, local: string): Promise<string[]> => packDir(local).then(() => []);
