// A terminal's output as a file of asciinema, asciicast version 2: a header with the size
// that it had first, and a line of JSON for each piece of output, as text, and for each
// change of size, with its time.

import type { Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import type { Place } from './api.js';
import { save } from './download.js';
import { size as bytes } from './format.js';
import { boundsOf, clockFrom, readRecording } from './recording.js';
import type { Size } from './sizes.js';

/** Characters that are handed to the browser at once, which may put them on the disk. */
const part = 4 << 20;

/** Saves all that is kept; size is that at the beginning, if it is not recorded. */
export async function exportCast(at: Place, info: Info, size: Size, progress: (bytes: number) => void, signal: AbortSignal): Promise<void> {
  let blob = new Blob();
  let text = '';
  let done = 0;
  let last = 0;
  let begun = false;
  const { base } = boundsOf(info);
  const clock = clockFrom(info, base);
  const letters = new TextDecoder('utf-8', { ignoreBOM: true });
  const event = (ms: number, code: 'o' | 'm' | 'r', data: string) => {
    if (data) text += `${JSON.stringify([Number((ms / 1000).toFixed(6)), code, data])}\n`;
  };
  await readRecording(
    at,
    info,
    base,
    clock,
    (m) => {
      last = m.at;
      if (m.kind === 'freed') event(m.at, 'm', `${bytes(m.bytes)} were freed to save room`);
      if (m.kind === 'resized' && begun) event(m.at, 'r', `${m.size.cols}x${m.size.rows}`);
      if (m.kind === 'resized' && !begun) size = m.size;
      if (m.kind === 'resized' || m.kind === 'output') begun = true;
      if (m.kind !== 'output') return;
      event(m.at, 'o', letters.decode(m.data, { stream: true }));
      done += m.data.length;
      if (text.length < part) return;
      blob = new Blob([blob, text]);
      text = '';
      progress(done);
    },
    signal,
  );
  if (signal.aborted) return;
  event(last, 'o', letters.decode());
  const header = { version: 2, width: size.cols, height: size.rows, ...(clock.zero && { timestamp: Math.floor(clock.zero / 1000) }), ...(info.spec?.name && { title: info.spec.name }) };
  save(new Blob([`${JSON.stringify(header)}\n`, blob, text], { type: 'application/x-asciicast' }), info, '.cast');
}
