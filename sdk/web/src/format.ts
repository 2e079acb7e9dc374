// Numbers, times and names as people read them.

import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { Cause, type Exit } from '../../js/src/gen/tend/v1/spec_pb.js';

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function size(bytes: number | bigint): string {
  let n = Number(bytes);
  let u = 0;
  while (n >= 1024 && u < units.length - 1) {
    n /= 1024;
    u++;
  }
  return `${u === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[u]}`;
}

/** A whole number, not below 0, in groups of three digits; toLocaleString takes fifty times as long. */
export function grouped(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ',');
}

export function percent(thousandths: number): string {
  const p = thousandths / 10;
  return `${p >= 10 ? Math.round(p) : p.toFixed(1)} %`;
}

export function millis(t: Timestamp | undefined): number {
  return t ? Number(t.seconds) * 1000 + t.nanos / 1e6 : 0;
}

const two = (n: number) => String(n).padStart(2, '0');
let last: [ms: number, text: string] = [0, ''];

/** A moment by the clock of who looks, to a tenth of a second, which is cut and not rounded. */
export function instant(ms: number): string {
  if (last[0] !== ms) {
    const d = new Date(ms);
    last = [ms, `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${Math.floor(d.getMilliseconds() / 100)}`];
  }
  return last[1];
}

export function age(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d`;
}

const signals: Record<number, string> = { 1: 'SIGHUP', 2: 'SIGINT', 3: 'SIGQUIT', 4: 'SIGILL', 6: 'SIGABRT', 8: 'SIGFPE', 9: 'SIGKILL', 10: 'SIGUSR1', 11: 'SIGSEGV', 12: 'SIGUSR2', 13: 'SIGPIPE', 14: 'SIGALRM', 15: 'SIGTERM' };

export const signalName = (n: number) => signals[n] ?? `signal ${n}`;

/** How a process ended. */
export function ended(e: Exit): string {
  if (e.lost) return e.cause === Cause.SHUTDOWN ? 'lost with the daemon' : 'lost';
  const how = e.signal ? signalName(e.signal) : `exit ${e.code}`;
  switch (e.cause) {
    case Cause.TIMEOUT:
      return `timeout, ${how}`;
    case Cause.OOM:
      return `out of memory, ${how}`;
    case Cause.KILLED:
      return 'killed';
    case Cause.SHUTDOWN:
      return 'shut down';
    case Cause.NO_READERS:
      return 'no readers';
  }
  return how;
}

// Controls, and what changes the order or hides the place of letters.
const hidden = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A name that cannot pass for another: what would not be seen is shown. */
export function visible(text: string): string {
  return text.replace(hidden, (c) => {
    const n = c.charCodeAt(0);
    if (n < 0x20) return String.fromCharCode(0x2400 + n);
    return n === 0x7f ? '\u2421' : `\u2039U+${n.toString(16).toUpperCase().padStart(4, '0')}\u203a`;
  });
}
