// All output as a file: the raw bytes. Of several streams as they came.

import { Stream, type Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import { follow, type Place } from './api.js';

/** Bytes that are handed to the browser at once, which may put them on the disk. */
const part = 8 << 20;

export async function download(at: Place, info: Info, streams: Stream[], progress: (bytes: number) => void, signal: AbortSignal): Promise<void> {
  let blob = new Blob();
  let parts: Uint8Array<ArrayBuffer>[] = [];
  let waiting = 0;
  let done = 0;
  const reached = new Map<Stream, bigint>();
  let failure: unknown;
  const put = () => {
    blob = new Blob([blob, ...parts], { type: 'application/octet-stream' });
    parts = [];
    waiting = 0;
    progress(done);
  };
  await follow(
    (s) => at.processes.read({ process: { by: { case: 'id', value: info.id } }, streams, from: [...reached].map(([stream, offset]) => ({ stream, offset })), noFollow: true }, { signal: s }),
    ({ event }) => {
      if (event?.fact.case === 'goingAway') return 'again';
      if (event?.fact.case !== 'output') return true;
      const { data, stream, offset } = event.fact.value;
      reached.set(stream, offset + BigInt(data.length));
      parts.push(data as Uint8Array<ArrayBuffer>);
      waiting += data.length;
      done += data.length;
      if (waiting >= part) put();
      return true;
    },
    signal,
  ).catch((err: unknown) => (failure = err));
  if (failure) throw failure;
  if (signal.aborted) return;
  put();
  save(blob, info, streams.length === 1 && streams[0] === Stream.STDERR ? '.stderr.log' : '.log');
}

/** Hands a file to the browser, named after the process. */
export function save(blob: Blob, info: Info, ending: string): void {
  const url = URL.createObjectURL(blob);
  const a = document.createElement('a');
  a.href = url;
  a.download = (info.spec?.name || info.id).replace(/[^A-Za-z0-9._-]+/g, '_') + ending;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
