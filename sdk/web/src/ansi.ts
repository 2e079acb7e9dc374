// One line of output as nodes: colours of SGR sequences, and everything that would
// not be seen, or would move letters, shown as a mark. Nothing in it is ever markup.

import { visible } from './format.js';

export interface Style {
  fg: string;
  bg: string;
  set: Set<string>;
}

export const plain = (): Style => ({ fg: '', bg: '', set: new Set() });

// CSI sequences, strings (OSC, DCS, …), and other escapes; then what is hidden.
// eslint-disable-next-line no-control-regex
const escape = /\u001b\[([0-?]*)[ -/]*([@-~])|\u001b[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|\u001b[ -/]*[0-~]/g;
const marks = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]+/g;

const flags: Record<number, string> = { 1: 'bold', 2: 'dim', 3: 'italic', 4: 'underline', 7: 'inverse', 9: 'strike' };

function extended(codes: number[], at: number): [string, number] {
  if (codes[at + 1] === 5) return [colour256(codes[at + 2] ?? 0), at + 2];
  if (codes[at + 1] === 2) return [`rgb(${[2, 3, 4].map((n) => Math.min(255, codes[at + n] ?? 0)).join(' ')})`, at + 4];
  return ['', at];
}

function colour256(n: number): string {
  if (n < 16) return `var(--ansi-${n})`;
  if (n >= 232) return `rgb(${Array(3).fill((Math.min(n, 255) - 232) * 10 + 8).join(' ')})`;
  const level = (v: number) => (v ? v * 40 + 55 : 0);
  n -= 16;
  return `rgb(${level(Math.floor(n / 36))} ${level(Math.floor(n / 6) % 6)} ${level(n % 6)})`;
}

function apply(style: Style, parameters: string): void {
  const codes = parameters.split(/[;:]/).map((c) => Number(c) || 0);
  for (let n = 0; n < codes.length; n++) {
    const c = codes[n]!;
    if (c === 0) Object.assign(style, plain());
    else if (flags[c]) style.set.add(flags[c]);
    else if (c === 22) style.set.delete('bold'), style.set.delete('dim');
    else if (c >= 23 && c <= 29) style.set.delete(flags[c - 20] ?? '');
    else if (c >= 30 && c <= 37) style.fg = `var(--ansi-${c - 30})`;
    else if (c >= 90 && c <= 97) style.fg = `var(--ansi-${c - 82})`;
    else if (c >= 40 && c <= 47) style.bg = `var(--ansi-${c - 40})`;
    else if (c >= 100 && c <= 107) style.bg = `var(--ansi-${c - 92})`;
    else if (c === 38) [style.fg, n] = extended(codes, n);
    else if (c === 48) [style.bg, n] = extended(codes, n);
    else if (c === 39) style.fg = '';
    else if (c === 49) style.bg = '';
  }
}

function add(to: Node, text: string, style: Style): void {
  if (!text) return;
  let last = 0;
  const put = (part: string, mark: boolean) => {
    if (!part) return;
    if (!mark && !style.fg && !style.bg && style.set.size === 0) {
      to.appendChild(document.createTextNode(part));
      return;
    }
    const span = document.createElement('span');
    span.textContent = mark ? visible(part) : part;
    span.className = mark ? 'hidden-mark' : [...style.set].join(' ');
    const inverse = style.set.has('inverse');
    if (!mark) {
      const [fg, bg] = inverse ? [style.bg || 'var(--paper)', style.fg || 'var(--ink)'] : [style.fg, style.bg];
      if (fg) span.style.color = fg;
      if (bg) span.style.backgroundColor = bg;
    }
    to.appendChild(span);
  };
  for (const m of text.matchAll(marks)) {
    put(text.slice(last, m.index), false);
    put(m[0], true);
    last = m.index + m[0].length;
  }
  put(text.slice(last), false);
}

/** Adds a line to a node. style goes on to the next one. */
export function draw(to: Node, text: string, style: Style): void {
  // A terminal would show what was written last over the line.
  const end = text.endsWith('\r') ? text.length - 1 : text.length;
  const over = text.lastIndexOf('\r', end - 1);
  text = text.slice(over + 1, end);
  let last = 0;
  for (const m of text.matchAll(escape)) {
    add(to, text.slice(last, m.index), style);
    if (m[2] === 'm') apply(style, m[1] ?? '');
    last = m.index + m[0].length;
  }
  add(to, text.slice(last), style);
}
