// What is in files, by plain HTTP: read in ranges, replaced if it still is what was
// read, uploaded with progress, downloaded over lost connections.

import { TendError } from '../../js/src/errors.js';
import { parseJSON, wireError } from '../../js/src/refusal.js';
import { ConnectionError } from '../../js/src/transport.js';
import { call, proved } from './proof.js';
import { lost } from './session.js';
import { transient } from './api.js';

export interface At {
  box: string;
  path: string;
}

const address = (call: 'Content' | 'Archive', { path }: At) => `/tend.v1.FileService/${call}?${new URLSearchParams({ path }).toString()}`;

const headers = ({ box }: At, more: Record<string, string> = {}): Record<string, string> => ({
  ...more,
  ...(box ? { 'Tend-Sandbox': box } : {}),
});

/** The file is not what it was. Nothing was written, and trying again does not help. */
export class Conflict extends TendError {
  constructor(message: string) {
    super('changed', message);
  }
}

/** The error of an answer that is none of what was asked for. */
function refusal(status: number, text: string): Error {
  const said = parseJSON(new TextEncoder().encode(text));
  if (typeof said?.code !== 'string') return new ConnectionError(`the server answers ${status}`); // no words of the server's
  const err = said.code === 'aborted' ? new Conflict(String(said.message ?? '')) : wireError(said);
  lost(err);
  return err;
}

export interface Part {
  data: Uint8Array<ArrayBuffer>;
  /** Bytes of the whole file. */
  size: number;
  version: string;
}

/** At most this much of the beginning of a file. */
export async function read(at: At, most: number, signal: AbortSignal): Promise<Part> {
  const res = await call(address('Content', at), { headers: headers(at, { Range: `bytes=0-${most - 1}` }), signal });
  if (!res.ok) throw refusal(res.status, await res.text());
  const size = Number(/\/(\d+)$/.exec(res.headers.get('Content-Range') ?? '')?.[1] ?? res.headers.get('Content-Length') ?? 0);
  return { data: new Uint8Array(await res.arrayBuffer()), size, version: res.headers.get('ETag') ?? '' };
}

/** The version that there is now. */
export async function versionOf(at: At): Promise<string> {
  const res = await call(address('Content', at), { method: 'HEAD', headers: headers(at) });
  return res.ok ? (res.headers.get('ETag') ?? '') : '';
}

/** What must be true of a file that is written. */
export type Condition = { version: string } | 'new' | 'any';

/** Writes a whole file, and returns its version. The server takes all of it, or none. */
export async function write(
  at: At,
  body: Blob,
  when: Condition,
  signal?: AbortSignal,
  progress?: (bytes: number) => void,
): Promise<string> {
  const condition: Record<string, string> = when === 'new' ? { 'If-None-Match': '*' } : when === 'any' ? {} : { 'If-Match': when.version };
  const request = { method: 'PUT', address: address('Content', at), headers: headers(at, condition), body };
  const send = (headers: Record<string, string>) =>
    new Promise<XMLHttpRequest>((ok, fail) => {
      const sent = new XMLHttpRequest(); // fetch tells nothing of what was sent
      sent.open(request.method, request.address);
      for (const [name, value] of Object.entries(headers)) sent.setRequestHeader(name, value);
      sent.upload.onprogress = (e) => progress?.(e.loaded);
      sent.onload = () => ok(sent);
      sent.onerror = () => fail(new ConnectionError('the connection was lost; nothing was written'));
      sent.onabort = () => fail(new TendError('closed', 'it was stopped; nothing was written'));
      signal?.addEventListener('abort', () => sent.abort(), { once: true });
      if (signal?.aborted) return fail(new TendError('closed', 'it was stopped; nothing was written'));
      sent.send(body);
    });
  const answer = await proved(request, send, (sent) => sent.getResponseHeader('WWW-Authenticate'));
  if (answer.status !== 204) throw refusal(answer.status, answer.responseText);
  return answer.getResponseHeader('ETag') ?? '';
}

/** Bytes that are handed to the browser at once, which may put them on the disk. */
const piece = 8 << 20;

/**
 * A file, or a directory as a tar, for the browser to keep. A file goes on where
 * a lost connection left it, unless it was changed meanwhile.
 */
export async function fetchAll(at: At, what: 'Content' | 'Archive', progress: (bytes: number) => void, signal: AbortSignal): Promise<Blob> {
  let blob = new Blob();
  let version = '';
  for (let failures = 0; ; ) {
    try {
      const again = blob.size > 0;
      const rest: Record<string, string> = again ? { Range: `bytes=${blob.size}-`, 'If-Match': version } : {};
      const res = await call(address(what, at), { headers: headers(at, rest), signal });
      if (res.status === 412) throw new TendError('changed', 'the file was changed while it came; download it again');
      if (!res.ok) throw refusal(res.status, await res.text());
      version = res.headers.get('ETag') ?? '';
      let parts: Uint8Array<ArrayBuffer>[] = [];
      let waiting = 0;
      const put = () => {
        blob = new Blob([blob, ...parts], { type: 'application/octet-stream' });
        parts = [];
        waiting = 0;
        progress(blob.size);
      };
      try {
        for (const reader = res.body!.getReader(); ; ) {
          const { done, value } = await reader.read();
          if (done) break;
          parts.push(value as Uint8Array<ArrayBuffer>);
          failures = 0;
          if ((waiting += value.length) >= piece) put();
        }
      } finally {
        put();
      }
      return blob;
    } catch (err) {
      if (signal.aborted || !transient(err) || (what === 'Archive' && blob.size > 0)) throw err;
      if (++failures > 20) throw err;
      await new Promise((next) => setTimeout(next, Math.min(100 * failures, 2000)));
    }
  }
}

/** Has the browser keep it. */
export function keep(blob: Blob, name: string): void {
  const a = document.createElement('a');
  a.href = URL.createObjectURL(blob);
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 60_000);
}
