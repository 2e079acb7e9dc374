// Lines of output in the document: one element each, which knows its stream and its bytes.

import { Stream } from '../../js/src/gen/tend/v1/spec_pb.js';
import { draw, plain } from './ansi.js';
import { grouped, instant, size } from './format.js';
import { textOf, type Line } from './lines.js';

/** What rows show. */
const lineOf = new WeakMap<Element, Line>();

export const lineOfRow = (row: Element): Line => lineOf.get(row)!;

/** The element of a line. */
export function rowOf(l: Line): HTMLElement {
  const el = document.createElement('div');
  lineOf.set(el, l);
  el.className = l.freed ? 'line freed' : l.stream === Stream.STDERR ? 'line stderr' : 'line';
  el.dataset['stream'] = String(l.stream);
  el.dataset['from'] = String(l.from);
  el.dataset['to'] = String(l.to);
  if (l.time) {
    el.dataset['when'] = instant(l.time);
    el.dataset['clock'] = el.dataset['when'].slice(11);
  }
  const at = document.createElement('span');
  at.className = 'at';
  at.dataset['at'] = grouped(l.from);
  const text = document.createElement('span');
  text.className = 'text';
  if (l.freed) text.textContent = `${size(l.to - l.from)} were freed to save room`;
  else draw(text, textOf(l), plain());
  el.append(at, text);
  return el;
}


export function rowsOf(lines: Line[]): DocumentFragment {
  const some = document.createDocumentFragment();
  for (const l of lines) some.appendChild(rowOf(l));
  return some;
}

const rowsIn = (content: HTMLElement) => content.children as HTMLCollectionOf<HTMLElement>;

/** The row with a byte of the one stream that content shows, or the one next to it. */
export function rowAt(content: HTMLElement, at: number): HTMLElement | undefined {
  const rows = rowsIn(content);
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (Number(rows[mid]!.dataset['to']) <= at) low = mid + 1;
    else high = mid;
  }
  return rows[low] ?? rows[rows.length - 1];
}

/** The row with a byte of one of several streams. */
export function rowWith(content: HTMLElement, stream: Stream, at: number): HTMLElement | undefined {
  for (const row of rowsIn(content)) if (Number(row.dataset['stream']) === stream && Number(row.dataset['from']) <= at && Number(row.dataset['to']) > at) return row;
  return undefined;
}

/** The offset of the first line that is seen when content is scrolled to top. */
export function offsetAt(content: HTMLElement, top: number): number {
  const rows = rowsIn(content);
  let low = 0;
  let high = rows.length - 1;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (rows[mid]!.offsetTop + rows[mid]!.offsetHeight <= top) low = mid + 1;
    else high = mid;
  }
  return Number(rows[low]?.dataset['from'] ?? 0);
}

export function unmark(content: HTMLElement): void {
  for (const r of content.querySelectorAll('.marked')) r.classList.remove('marked');
}
