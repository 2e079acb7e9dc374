// What the client takes from Node.js. browser/platform.ts has the same from a browser.

import type { AgentOptions } from 'node:https';
import { Duplex, Readable, Writable } from 'node:stream';
import type { Transport } from '../transport.js';
import { defaults as found } from './home.js';
import { HttpTransport } from './http.js';

/** Bytes, as callers get them. */
export type Bytes = Buffer;
/** The output of a process as a stream. */
export type OutputReadable = Readable;
/** The input of a process as a stream. */
export type InputWritable = Writable;

/** A TCP connection. */
export type PortStream = Duplex;

/** Options of Client.connect that Node.js alone has. */
export interface PlatformOptions {
  /** TLS of https URLs: ca, cert, key, … */
  tls?: AgentOptions;
}

/** @internal */
export function newTransport(url: string, token: string | undefined, options: PlatformOptions): Transport {
  return new HttpTransport(url, token, options.tls);
}

/** @internal What relative paths are below. */
export const currentDir = (): string => process.cwd();

/** @internal The same bytes, not a copy. */
export function bytesOf(data: Uint8Array): Bytes {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength);
}

/** @internal next: undefined is the end. */
export function readable(next: () => Promise<Bytes | undefined>, close: () => void): OutputReadable {
  let reading = false;
  return new Readable({
    async read() {
      if (reading) return;
      reading = true;
      try {
        for (;;) {
          const part = await next();
          if (!this.push(part ?? null) || !part) return;
        }
      } catch (err) {
        this.destroy(err as Error);
      } finally {
        reading = false;
      }
    },
    destroy(err, done) {
      close();
      done(err);
    },
  });
}

/** @internal */
export function writable(write: (data: Uint8Array) => Promise<void>, close: () => Promise<void>): InputWritable {
  return new Writable({
    decodeStrings: true,
    write: (chunk: Buffer, _encoding, done) => void write(chunk).then(() => done(), done),
    writev: (chunks, done) => void write(Buffer.concat(chunks.map((c) => c.chunk as Buffer))).then(() => done(), done),
    final: (done) => void close().then(() => done(), done),
  });
}

/** @internal */
export const defaults = found;

/** @internal */
export { packDir, unpackDir } from './dirs.js';
