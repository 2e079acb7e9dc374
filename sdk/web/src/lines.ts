// Bytes of output as lines with absolute offsets.

import { join } from '../../js/src/bytes.js';
import { Stream } from '../../js/src/gen/tend/v1/spec_pb.js';

/** The longest line in bytes that is kept whole; longer ones are broken. */
export const longest = 16 << 10;

export interface Line {
  stream: Stream;
  /** The raw range, with the line's end. */
  from: number;
  to: number;
  /** Without the line's end. Most lines of a flood are never read, so they are no text yet. */
  bytes: Uint8Array;
  /** When its first byte arrived, in ms since 1970; 0 if that is not known. */
  time: number;
  /** It has no end yet, or none here. */
  open: boolean;
  /** Bytes that were freed. */
  freed?: boolean;
}

const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

export const textOf = (l: Line) => decoder.decode(l.bytes);

/** Cuts pieces of one stream that follow each other into lines. */
export class Cutter {
  #rest: Uint8Array[] = [];
  #size = 0;
  #from: number;
  #time = 0;

  constructor(
    readonly stream: Stream,
    from: number,
  ) {
    this.#from = from;
  }

  /** Where the next piece begins. */
  get end(): number {
    return this.#from + this.#size;
  }

  /** The lines that end in this piece, which arrived at a time. */
  add(data: Uint8Array, time: number): Line[] {
    const lines: Line[] = [];
    for (let at = 0; at < data.length; ) {
      const stop = data.indexOf(10, at);
      const room = longest - this.#size;
      let to = stop < 0 ? data.length : stop + 1;
      const broken = to - at > room;
      if (broken) to = at + room + 1; // one more than fits shows where the last letter ends
      if (this.#size === 0) this.#time = time;
      this.#rest.push(data.subarray(at, to));
      this.#size += to - at;
      at = to;
      if (broken) lines.push(this.#break(time));
      if (at === stop + 1) lines.push(this.#cut(false));
    }
    return lines;
  }

  /** What is kept of a line that is too long by a byte. The rest, a letter at most, begins the next. */
  #break(time: number): Line {
    const bytes = join(this.#rest, this.#size);
    let n = longest;
    while (n > longest - 4 && (bytes[n]! & 0xc0) === 0x80) n--;
    [this.#rest, this.#size] = [[bytes.subarray(0, n)], n];
    const line = this.#cut(true);
    [this.#rest, this.#size, this.#time] = [[bytes.subarray(n)], bytes.length - n, time];
    return line;
  }

  #cut(open: boolean): Line {
    const line = this.#line(open);
    this.#from += this.#size;
    this.#rest = [];
    this.#size = 0;
    return line;
  }

  #line(open: boolean): Line {
    const bytes = join(this.#rest, this.#size);
    const end = bytes[bytes.length - 1] === 10 ? bytes.length - 1 : bytes.length;
    return { stream: this.stream, from: this.#from, to: this.#from + this.#size, bytes: bytes.subarray(0, end), time: this.#time, open };
  }

  /** The line that has not ended. */
  rest(): Line | undefined {
    return this.#size ? this.#line(true) : undefined;
  }
}

/** What comes after the first end of a line; all of it if there is none. */
export function afterLine(data: Uint8Array): number {
  return data.indexOf(10) + 1;
}
