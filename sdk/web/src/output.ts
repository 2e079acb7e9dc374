// A window on the output of a process, as it slides over absolute offsets: what is
// near is there, what is far is not. Both ends and any middle cost the same.

import { Stream, type Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import { Above } from './above.js';
import { follow, words, type Place } from './api.js';
import { millis } from './format.js';
import { perFrame } from './frame.js';
import { afterLine, Cutter, type Line } from './lines.js';
import { Pace } from './pace.js';
import { cutFront, readBlock, readNewest, type Block, type Piece } from './pieces.js';
import { lineOfRow, offsetAt, rowAt, rowOf, rowsOf, rowWith, unmark } from './rows.js';

/** Bytes that are asked for at once, and lines that are in the document at most. */
const block = 64 << 10;
const mostLines = 3000;
/** Of new output that waits to be drawn: beyond it, only the newest is. */
const mostPending = 512 << 10;
/** What is shown of two streams together, and kept of what comes before the document, in bytes. */
const together = 512 << 10;
/** Lines that are kept of what comes before the document. */
const mostAbove = 2 * mostLines;
/** Lines that are drawn at once when an output is opened. */
const atOnce = 300;
/**
 * While the end is followed: lines that are in the document at most, and those that are drawn in
 * a millisecond in the long run, about a screen in a frame. Of more, the newest are drawn; the others are
 * kept for who scrolls up.
 */
const mostFollowed = 1000;
const pace = 2;

export interface Bounds {
  base: number;
  end: number;
}

export interface Status {
  following: boolean;
  atStart: boolean;
  loading: boolean;
  trouble: string | undefined;
  error: string | undefined;
  bounds: Bounds;
  /** The offset of the first line that is seen. */
  at: number;
}

export class OutputView {
  readonly #content = document.createElement('div');
  readonly #scope = new AbortController();
  readonly #selector: { by: { case: 'id'; value: string } };
  /** How far each stream is known to go. */
  readonly #bounds = new Map<Stream, Bounds>();
  #cutters = new Map<Stream, Cutter>();
  /** The lines that have not ended, by stream. */
  #open = new Map<Stream, HTMLElement>();
  readonly #above = new Above(mostAbove, together);
  readonly #pace = new Pace(atOnce, pace, mostFollowed);
  /** The window: of one stream, [from, to); of several, whether it reaches the end. */
  #from = 0;
  #to = 0;
  #whole = false;
  #following = true;
  #busy = 0;
  #turn = 0; // counts jumps: what was asked before one is void
  #pending: Piece[] = [];
  #pendingSize = 0;
  readonly #soon = perFrame(() => this.#flush());
  #marked: number | undefined;
  #trouble: string | undefined;
  #error: string | undefined;
  #seenTop = 0;

  constructor(
    readonly box: HTMLElement,
    readonly place: Place,
    readonly info: Info,
    readonly streams: Stream[],
    readonly changed: (s: Status) => void,
  ) {
    this.#selector = { by: { case: 'id', value: info.id } };
    for (const s of info.streams) if (streams.includes(s.stream)) this.#bounds.set(s.stream, { base: Number(s.base), end: Number(s.end) });
    for (const s of streams) if (!this.#bounds.has(s)) this.#bounds.set(s, { base: 0, end: 0 });
    this.#content.className = 'lines';
    box.replaceChildren(this.#content);
    box.addEventListener('scroll', this.#scrolled, { passive: true, signal: this.#scope.signal });
    // Lines are wrapped anew when the window, or what is shown of them, changes.
    const watch = new ResizeObserver(() => this.#following && this.#stick());
    watch.observe(box);
    watch.observe(this.#content);
    this.#scope.signal.addEventListener('abort', () => watch.disconnect());
  }

  get #one(): Stream | undefined {
    return this.streams.length === 1 ? this.streams[0] : undefined;
  }

  get bounds(): Bounds {
    const all = [...this.#bounds.values()];
    return this.#one !== undefined ? all[0]! : { base: all.reduce((n, b) => n + b.base, 0), end: all.reduce((n, b) => n + b.end, 0) };
  }

  close(): void {
    this.#scope.abort();
  }

  /** Shows the output: at an offset, or its end, which it then follows. */
  async open(at: number | undefined): Promise<void> {
    if (at === undefined || this.#one === undefined) await this.toEnd();
    else await this.toOffset(at, true);
    await this.#follow();
  }

  async toEnd(): Promise<void> {
    this.#following = true;
    const b = this.bounds;
    if (this.#one === undefined) await this.#loadTogether();
    else if (this.#to !== b.end || !this.#whole) await this.#load(Math.max(b.base, b.end - block), b.end);
    this.#stick();
    this.#tell();
  }

  async toStart(): Promise<void> {
    this.#following = false;
    if (this.#one !== undefined) await this.#load(this.bounds.base, this.bounds.base + block);
    this.box.scrollTop = 0;
    this.#tell();
  }

  /** Shows the line that has this byte, and marks it if it is meant. */
  async toOffset(at: number, mark: boolean): Promise<void> {
    this.#following = false;
    const b = this.bounds;
    at = Math.max(b.base, Math.min(at, b.end));
    this.#marked = mark ? at : undefined;
    if (at < this.#from || at >= this.#to) await this.#load(Math.max(b.base, at - block), at + block, at);
    this.#mark();
    const row = rowAt(this.#content, at);
    if (row) this.box.scrollTop = row.offsetTop - this.box.clientHeight / 3;
    this.#tell();
  }

  /** Reports whether the line of a stream with this byte is there, and shows it. */
  reveal(stream: Stream, at: number): boolean {
    if (this.#above.has((l) => l.stream === stream && l.from <= at && l.to > at)) this.#drawAbove(this.#above.length);
    const row = rowWith(this.#content, stream, at);
    if (!row) return false;
    this.#following = false;
    unmark(this.#content);
    row.classList.add('marked');
    this.box.scrollTop = row.offsetTop - this.box.clientHeight / 3;
    this.#tell();
    return true;
  }

  setFollowing(on: boolean): void {
    this.#following = on;
    if (on) void this.toEnd();
    else this.#tell();
  }

  // Loading

  #read(from: number, bytes: number): Promise<Block> {
    return readBlock(this.place, this.info.id, this.#one!, from, bytes, this.#scope.signal);
  }

  async #task<T>(work: () => Promise<T>): Promise<T | undefined> {
    this.#busy++;
    this.#tell();
    try {
      const v = await work();
      this.#error = undefined;
      return v;
    } catch (err) {
      if (!this.#scope.signal.aborted) this.#error = words(err);
      return undefined;
    } finally {
      this.#busy--;
      this.#tell();
    }
  }

  /** Makes what is near [from, to) the window. */
  async #load(from: number, to: number, around?: number): Promise<void> {
    const turn = ++this.#turn;
    const got = await this.#task(() => this.#read(from, Math.max(1, to - from)));
    if (!got || turn !== this.#turn) return;
    this.#reset();
    const b = this.bounds;
    const all = got.pieces;
    let at = got.at;
    if (got.freed) b.base = Math.max(b.base, at);
    // The first line is not whole, unless everything begins there.
    if (at > b.base) at += cutFront(all);
    const cutter = new Cutter(this.#one!, at);
    const lines = all.flatMap((p) => cutter.add(p.data, p.time));
    // Lines may be short: those around the one that is meant, or at the end that is.
    let first = 0;
    if (around === undefined && to >= b.end) this.#keepAbove(lines.splice(0, Math.max(0, lines.length - atOnce)));
    if (around !== undefined) first = lines.findIndex((l) => l.to > around) - mostLines / 3;
    first = Math.max(0, Math.min(first, lines.length - mostLines));
    this.#from = lines[first]?.from ?? at;
    this.#keep(cutter, lines.slice(first), mostLines);
    this.#whole = this.#to >= b.end;
    this.#showRest();
  }

  /** Adds lines of the one stream below, but no more than most. cutter has cut them. */
  #keep(cutter: Cutter, lines: Line[], most: number): void {
    const kept = lines.slice(0, most);
    if (kept.length < lines.length) cutter = new Cutter(cutter.stream, kept[kept.length - 1]!.to);
    this.#open.get(cutter.stream)?.remove();
    this.#open.delete(cutter.stream);
    this.#content.appendChild(rowsOf(kept));
    this.#cutters.set(cutter.stream, cutter);
    this.#to = cutter.end;
  }

  async #loadTogether(): Promise<void> {
    if (this.#whole) return;
    const turn = ++this.#turn;
    const got = await this.#task(() => readNewest(this.place, this.info.id, this.streams, together, this.#scope.signal));
    if (!got || turn !== this.#turn) return;
    this.#reset();
    for (const [s, b] of this.#bounds) {
      const own = got.filter((p) => p.stream === s);
      if (!own[0] || own[0].offset <= b.base) continue;
      cutFront(own);
      this.#from = 1; // there is more before
    }
    const all = got.filter((p) => p.data.length > 0);
    for (const p of all) if (!this.#cutters.has(p.stream)) this.#cutters.set(p.stream, new Cutter(p.stream, p.offset));
    this.#append(all.flatMap((p) => this.#cut(p)));
    for (const [s, b] of this.#bounds) {
      const c = this.#cutters.get(s);
      if (!c) this.#cutters.set(s, new Cutter(s, b.end));
      else b.end = Math.max(b.end, c.end);
    }
    this.#whole = true;
    this.#showRest();
  }

  #reset(): void {
    this.#cutters.clear();
    this.#clear();
    this.#pending = [];
    this.#pendingSize = 0;
    this.#from = this.#to = 0;
    this.#whole = false;
  }

  /** Empties the document. */
  #clear(): void {
    this.#open.clear();
    this.#content.replaceChildren();
    this.#above.clear();
  }

  /** The lines that end in what follows what there is of its stream. */
  #cut({ stream, data, time }: Piece): Line[] {
    const cutter = this.#cutters.get(stream);
    const lines = cutter?.add(data, time) ?? [];
    if (lines.length) {
      this.#open.get(stream)?.remove();
      this.#open.delete(stream);
    }
    if (cutter && this.#one !== undefined) this.#to = cutter.end;
    return lines;
  }

  /** Adds lines to the document, before those that have not ended. */
  #append(lines: Line[]): void {
    // Of many only the last ones are drawn, if the end is what is seen.
    const kept = this.#following ? lines.slice(-this.#room()) : lines;
    if (kept.length < lines.length) {
      this.#dropTop(this.#content.children.length);
      this.#keepAbove(lines.slice(0, -kept.length));
      if (this.#one !== undefined) this.#from = kept[0]!.from;
    }
    const first = this.#open.size ? [...this.#open.values()][0]! : null;
    this.#content.insertBefore(rowsOf(kept), first);
    this.#pace.drawn(kept.length);
  }

  /** How many lines are drawn at most: what is due by now, and never less than a screen. */
  #room(): number {
    return this.#pace.room(Math.max(this.box.clientHeight / 16, 50));
  }

  /** Keeps lines that are above all that is drawn. */
  #keepAbove(lines: Line[]): void {
    if (this.#above.keep(lines) && this.#one === undefined) this.#from = 1; // there is more before
  }

  /** Draws the last lines of those above. */
  #drawAbove(most: number): void {
    const lines = this.#above.take(most);
    this.#prepend(lines);
    if (this.#one !== undefined && lines[0]) this.#from = lines[0].from;
  }

  /** Adds lines at the top; what is seen stays where it is. */
  #prepend(lines: Line[]): void {
    const before = this.box.scrollHeight;
    this.#content.prepend(rowsOf(lines));
    this.box.scrollTop += this.box.scrollHeight - before;
  }

  /** Shows the lines that have not ended. */
  #showRest(): void {
    for (const [s, c] of this.#cutters) {
      const rest = c.rest();
      if (!rest) continue;
      const r = rowOf(rest);
      const old = this.#open.get(s);
      if (old) old.replaceWith(r);
      else this.#content.appendChild(r);
      this.#open.set(s, r);
    }
    this.#mark();
  }

  async #extendDown(): Promise<void> {
    if (this.#one === undefined || this.#busy || this.#to >= this.bounds.end) return;
    const turn = this.#turn;
    const from = this.#to;
    const got = await this.#task(() => this.#read(from, block));
    if (!got || turn !== this.#turn || this.#to !== from) return;
    if (got.at !== from) {
      this.#cutters.set(this.#one, new Cutter(this.#one, got.at));
      this.#content.appendChild(rowOf({ stream: this.#one, from, to: got.at, bytes: new Uint8Array(), time: 0, open: false, freed: true }));
    }
    const cutter = this.#cutters.get(this.#one)!;
    this.#keep(cutter, got.pieces.flatMap((p) => cutter.add(p.data, p.time)), mostLines / 2);
    this.#dropTop(this.#content.children.length - mostLines);
    this.#whole = this.#to >= this.bounds.end;
    this.#showRest();
    this.#tell();
  }

  async #extendUp(): Promise<void> {
    const b = this.bounds;
    if (this.#above.length) {
      this.#drawAbove(mostLines / 2);
      this.#dropBottom(this.#content.children.length - mostLines);
      this.#mark();
      return;
    }
    if (this.#one === undefined || this.#busy || this.#from <= b.base) return;
    const turn = this.#turn;
    const to = this.#from;
    const from = Math.max(b.base, to - block);
    const got = await this.#task(() => this.#read(from, to - from));
    if (!got || turn !== this.#turn || this.#from !== to) return;
    if (got.freed || got.at > from) b.base = Math.max(b.base, Math.min(got.at, to));
    const all = got.pieces;
    let at = got.at;
    if (at > b.base) at += cutFront(all);
    if (at >= to) {
      this.#from = to;
      return;
    }
    const cutter = new Cutter(this.#one, at);
    const lines = all.flatMap((p) => cutter.add(p.data, p.time));
    const rest = cutter.rest();
    if (rest) lines.push(rest);
    lines.splice(0, Math.max(0, lines.length - mostLines / 2));
    at = lines[0]?.from ?? at;
    this.#prepend(lines);
    this.#from = at;
    this.#dropBottom(this.#content.children.length - mostLines);
    this.#mark();
    this.#tell();
  }

  #dropTop(n: number): void {
    if (n <= 0) return;
    const before = this.#following ? 0 : this.box.scrollHeight;
    const gone = [...this.#content.children].slice(0, Math.min(n, this.#content.children.length - this.#open.size));
    this.#keepAbove(gone.map((r) => lineOfRow(r)));
    for (const r of gone) r.remove();
    const first = this.#content.firstElementChild as HTMLElement | null;
    if (this.#one !== undefined) this.#from = first ? Number(first.dataset['from']) : this.#to;
    if (!this.#following) this.box.scrollTop -= before - this.box.scrollHeight;
  }

  #dropBottom(n: number): void {
    if (n <= 0 || this.#one === undefined) return;
    for (let k = 0; k < n; k++) this.#content.lastElementChild?.remove();
    this.#open.clear();
    const last = this.#content.lastElementChild as HTMLElement | null;
    this.#to = last ? Number(last.dataset['to']) : this.#from;
    this.#cutters.set(this.#one, new Cutter(this.#one, this.#to));
    this.#whole = false;
  }

  // Following

  async #follow(): Promise<void> {
    const at = () => this.streams.map((stream) => ({ stream, offset: BigInt(this.#bounds.get(stream)!.end) }));
    const drain = { seconds: BigInt(-1), nanos: 0 };
    try {
      await follow(
        (signal) => this.place.processes.read({ process: this.#selector, streams: this.streams, from: at(), drain }, { signal }),
        ({ event }) => {
          const fact = event?.fact;
          if (fact?.case === 'goingAway') return 'again';
          if (fact?.case === 'gap' && fact.value) {
            const b = this.#bounds.get(fact.value.stream);
            if (b) b.end = Math.max(b.end, Number(fact.value.to));
          }
          if (fact?.case === 'output') this.#take({ stream: fact.value.stream, offset: Number(fact.value.offset), data: fact.value.data, time: millis(event!.time) });
          return true;
        },
        this.#scope.signal,
        {
          state: (t) => {
            if (t === this.#trouble) return;
            this.#trouble = t;
            this.#tell();
          },
        },
      );
    } catch (err) {
      this.#error = words(err);
      this.#tell();
    }
  }

  #take(p: Piece): void {
    const b = this.#bounds.get(p.stream);
    if (!b) return;
    b.end = Math.max(b.end, p.offset + p.data.length);
    this.#pending.push(p);
    this.#pendingSize += p.data.length;
    while (this.#pendingSize > 2 * mostPending && this.#pending.length > 1) this.#pendingSize -= this.#pending.shift()!.data.length;
    this.#soon();
  }

  #flush(): void {
    const all = this.#pending;
    this.#pending = [];
    this.#pendingSize = 0;
    let lines: Line[] = [];
    for (const p of all) {
      const cutter = this.#cutters.get(p.stream);
      if (!cutter || p.offset + p.data.length <= cutter.end) continue;
      if (!this.#following && this.#content.children.length + lines.length > 3 * mostLines) {
        this.#whole = false;
        break;
      }
      if (p.offset <= cutter.end && (this.#whole || p.offset === cutter.end)) {
        lines = lines.concat(this.#cut({ ...p, data: p.data.subarray(cutter.end - p.offset) }));
        continue;
      }
      if (!this.#following) {
        // There is more than is drawn; scrolling asks for it.
        this.#whole = false;
        break;
      }
      // Too much came at once: it goes on with the newest.
      const cut = afterLine(p.data);
      if (this.#one !== undefined) {
        this.#clear();
        lines = [];
        this.#from = p.offset + cut;
      }
      this.#cutters.set(p.stream, new Cutter(p.stream, p.offset + cut));
      lines = lines.concat(this.#cut({ ...p, data: p.data.subarray(cut) }));
    }
    this.#append(lines);
    if (this.#one !== undefined) this.#whole = this.#to >= this.bounds.end;
    if (this.#following) this.#dropTop(this.#content.children.length - mostFollowed);
    this.#showRest();
    if (this.#following) this.#stick();
    this.#tell();
  }

  #stick(): void {
    this.box.scrollTop = this.box.scrollHeight;
    this.#seenTop = this.box.scrollTop;
  }

  readonly #scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = this.box;
    const up = scrollTop < this.#seenTop - 2;
    this.#seenTop = scrollTop;
    const below = scrollHeight - clientHeight - scrollTop;
    if (up && below > 40) this.#following = false;
    else if (below < 4 && this.#whole) this.#following = true;
    if (scrollTop < 1500 && (!this.#following || scrollHeight < 2 * clientHeight)) void this.#extendUp();
    if (below < 1500 && !this.#whole) void this.#extendDown();
    this.#tell();
  };

  // Lines

  #mark(): void {
    if (this.#marked === undefined) return;
    unmark(this.#content);
    const r = rowAt(this.#content, this.#marked);
    if (r && Number(r.dataset['from']) <= this.#marked) r.classList.add('marked');
  }

  #telling = false;

  #tell(): void {
    if (this.#telling || this.#scope.signal.aborted) return;
    this.#telling = true;
    requestAnimationFrame(() => {
      this.#telling = false;
      if (this.#scope.signal.aborted) return;
      const bounds = this.bounds;
      this.changed({
        following: this.#following, atStart: this.#one !== undefined ? this.#from <= bounds.base : this.#from === 0, loading: this.#busy > 0,
        trouble: this.#trouble, error: this.#error, bounds: { ...bounds }, at: offsetAt(this.#content, this.box.scrollTop),
      });
    });
  }
}
