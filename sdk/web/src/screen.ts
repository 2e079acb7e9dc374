// A terminal on a process: xterm.js shows the bytes from an offset on, and what is
// typed goes to the process once, whatever becomes of the connection.

import { FitAddon } from '@xterm/addon-fit';
import { SearchAddon } from '@xterm/addon-search';
import type { Terminal } from '@xterm/xterm';
import { Stream, type Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import { randomHex } from '../../js/src/random.js';
import { follow, repeat, words, type Place } from './api.js';
import { Drawing } from './drawing.js';
import { readOnly } from './session.js';
import { drawable, SizesTaken } from './sizes.js';
import { terminal } from './xterm.js';

/** How much of what was written before is drawn, in bytes. */
const replay = 1 << 20;

export interface ScreenState {
  size?: string;
  trouble?: string | undefined;
  over?: boolean;
}

export class Screen {
  readonly #scope = new AbortController();
  readonly #term: Terminal;
  readonly #drawing: Drawing;
  readonly #fit = new FitAddon();
  readonly #search = new SearchAddon();
  readonly #selector: { by: { case: 'id'; value: string } };
  #offset: number;
  #replaying: boolean;
  /** This writer, and how much of what it sends was taken. */
  readonly #writer = randomHex(12);
  #written = 0n;
  #typed: Uint8Array[] = [];
  #sending = false;

  constructor(
    readonly box: HTMLElement,
    readonly place: Place,
    readonly info: Info,
    readonly changed: (s: ScreenState) => void,
  ) {
    this.#selector = { by: { case: 'id', value: info.id } };
    const out = info.streams.find((s) => s.stream === Stream.PTY);
    const [base, end] = [Number(out?.base ?? 0n), Number(out?.end ?? 0n)];
    this.#offset = Math.max(base, end - replay);
    this.#replaying = end > this.#offset;
    this.#term = terminal({ disableStdin: !!info.exit || readOnly(), ...drawable(info.spec?.pty) });
    this.#drawing = new Drawing(this.#term);
    this.#term.loadAddon(this.#fit);
    this.#term.loadAddon(this.#search);
    this.#term.open(box);
    // A program's answers to what was written long ago are not for it.
    const deaf = readOnly();
    this.#term.onData((text) => !deaf && !this.#replaying && this.#type(new TextEncoder().encode(text)));
    this.#term.onBinary((text) => !deaf && !this.#replaying && this.#type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    this.#term.onResize(({ cols, rows }) => this.#resized(cols, rows));
    if (!info.exit && !readOnly()) {
      const watch = new ResizeObserver(() => this.#fit.fit());
      watch.observe(box);
      this.#scope.signal.addEventListener('abort', () => watch.disconnect());
      this.#fit.fit();
      this.#resized(this.#term.cols, this.#term.rows);
      this.#term.focus();
    }
    void this.#read(end);
  }

  /** Selects the next place with a text, or the one before, and shows it; false: there is none. */
  find(text: string, back: boolean): boolean {
    return back ? this.#search.findPrevious(text) : this.#search.findNext(text);
  }

  close(): void {
    this.#scope.abort();
    this.#drawing.close();
  }

  async #read(end: number): Promise<void> {
    const drawing = this.#drawing;
    const place = this.place;
    const selector = this.#selector;
    const offset = () => this.#offset;
    // Who only looks on sees it in the sizes that others give it.
    const sizes = !!this.info.exit || readOnly();
    const taken = new SizesTaken();
    // Reading waits while much is to be drawn: the server then sends no more.
    async function* paced(signal: AbortSignal) {
      taken.again();
      for await (const m of place.processes.read({ process: selector, streams: [Stream.PTY], from: [{ stream: Stream.PTY, offset: BigInt(offset()) }], drain: { seconds: -1n, nanos: 0 }, sizes }, { signal })) {
        yield m;
        await drawing.room();
      }
    }
    try {
      await follow(
        paced,
        ({ event }) => {
          const fact = event?.fact;
          if (fact?.case === 'goingAway') return 'again';
          if (fact?.case === 'exited') {
            this.#term.options.disableStdin = true;
            this.changed({ over: true });
          }
          if (fact?.case === 'gap') this.#offset = Math.max(this.#offset, Number(fact.value.to));
          if (fact?.case === 'resized' && taken.fresh(Number(fact.value.offset), !!event!.time)) drawing.size(drawable(fact.value.size));
          if (fact?.case !== 'output') return true;
          const { data } = fact.value;
          const from = Number(fact.value.offset);
          const fresh = data.subarray(Math.max(0, this.#offset - from));
          this.#offset = Math.max(this.#offset, from + data.length);
          const past = this.#offset >= end;
          drawing.output(fresh, () => {
            if (past) this.#replaying = false;
          });
          return true;
        },
        this.#scope.signal,
        { state: (trouble) => this.changed({ trouble }) },
      );
    } catch (err) {
      if (!this.#scope.signal.aborted) this.changed({ trouble: words(err) });
    }
  }

  #type(data: Uint8Array): void {
    this.#typed.push(data);
    if (!this.#sending) void this.#send();
  }

  async #send(): Promise<void> {
    this.#sending = true;
    try {
      while (this.#typed.length && !this.#scope.signal.aborted) {
        let size = 0;
        const parts: Uint8Array[] = [];
        while (this.#typed.length && size + this.#typed[0]!.length <= 1 << 20) {
          parts.push(this.#typed.shift()!);
          size += parts[parts.length - 1]!.length;
        }
        if (!parts.length) parts.push(this.#typed.shift()!);
        const data = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
        let at = 0;
        for (const p of parts) {
          data.set(p, at);
          at += p.length;
        }
        let again = false;
        await repeat(() => {
          const call = this.place.processes.write({ process: this.#selector, data, writer: this.#writer, writerOffset: this.#written, again }, { signal: this.#scope.signal });
          again = true;
          return call;
        }, this.#scope.signal);
        this.#written += BigInt(data.length);
      }
    } catch (err) {
      this.#typed = [];
      if (!this.#scope.signal.aborted) this.changed({ trouble: words(err) });
    } finally {
      this.#sending = false;
    }
  }

  #resized(cols: number, rows: number): void {
    this.changed({ size: `${cols}\u00d7${rows}` });
    if (this.info.exit || readOnly()) return;
    void repeat(() => this.place.processes.resize({ process: this.#selector, size: { cols, rows } }, { signal: this.#scope.signal }), this.#scope.signal).catch(() => undefined);
  }
}
