// xterm.js as the page has it: its font, its colours, and nothing that its policy refuses.

import { Terminal, type ITerminalInitOnlyOptions, type ITerminalOptions } from '@xterm/xterm';
import { linesAbove, type Size } from './sizes.js';
import { strictDocument } from './strict.js';
import { isDark, onColours } from './theme.js';

export function terminal(options: ITerminalOptions & ITerminalInitOnlyOptions & Size): Terminal {
  const term = new Terminal({
    documentOverride: strictDocument(), fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'), fontSize: 13, scrollback: linesAbove(options),
    screenReaderMode: false, theme: colours(), minimumContrastRatio: 4.5, ...options,
  });
  term.onResize((size) => (term.options.scrollback = linesAbove(size)));
  term.loadAddon({ activate: () => undefined, dispose: onColours(() => (term.options.theme = colours())) }); // it is disposed of with the terminal
  return term;
}

/** Gives a terminal a size. Lines that are too many for it go before, the oldest. */
export function resize(term: Terminal, { cols, rows }: Size): void {
  term.options.scrollback = Math.min(linesAbove(term), linesAbove({ cols, rows }));
  term.resize(cols, rows);
}

function colours() {
  const css = getComputedStyle(document.documentElement);
  const of = (name: string) => resolve(css.getPropertyValue(name).trim());
  const names = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
  const bright = (n: string) => `bright${n[0]!.toUpperCase()}${n.slice(1)}`;
  return {
    background: of('--paper'), foreground: of('--ink'), cursor: of('--accent'), cursorAccent: of('--paper'), selectionBackground: isDark() ? '#2f5a4d' : '#b9e2d3',
    ...Object.fromEntries(names.flatMap((n, k) => [[n, of(`--ansi-${k}`)], [bright(n), of(`--ansi-${k + 8}`)]])),
  };
}

/** A colour of the style, which may be one of light and dark, as xterm.js reads it. */
function resolve(colour: string): string {
  const probe = document.createElement('span');
  probe.style.color = colour;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  const [r, g, b] = (found.match(/\d+/g) ?? ['0', '0', '0']).map(Number);
  return `#${[r, g, b].map((v) => v!.toString(16).padStart(2, '0')).join('')}`;
}
