// Graphs of figures over time, by uPlot; it is loaded when the first is shown.

import uPlot from 'uplot';
import type { Lines } from './gaps.js';
import { onColours } from './theme.js';

export interface Shape {
  /** The name of each line. */
  names: string[];
  /** A value as people read it. */
  text: (n: number) => string;
  /** Seconds: from where to where time goes, whatever was measured. */
  from: number;
  to: number;
}

const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name);
// A canvas does not know light-dark(), which an element resolves.
const resolved = (el: HTMLElement, name: string) => {
  el.style.color = `var(${name})`;
  return getComputedStyle(el).color || colour(name);
};
const inks = ['--accent', '--ansi-4'];

/** Draws into an element until stop is called; set shows others. */
export function graph(at: HTMLElement, shape: Shape, lines: Lines): { set: (shape: Shape, lines: Lines) => void; stop: () => void } {
  const probe = document.createElement('i');
  at.append(probe);
  let now = shape;
  const axis = { stroke: () => resolved(probe, '--soft'), grid: { stroke: () => resolved(probe, '--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  const u = new uPlot(
    {
      width: at.clientWidth || 300,
      height: 130,
      cursor: { y: false, points: { show: true } },
      legend: { show: true, live: true },
      scales: { x: { range: () => [now.from, now.to] }, y: { range: (_, _min, max) => [0, Math.max(max * 1.1, 1)] } },
      axes: [axis, { ...axis, size: 70, values: (_, all) => all.map((n) => now.text(n)) }],
      series: [
        { label: 'Time', value: (_, s) => (s ? new Date(s * 1000).toLocaleString([], { dateStyle: 'short', timeStyle: 'short' }) : '') },
        ...shape.names.map((label, n) => ({ label, stroke: () => resolved(probe, inks[n]!), width: 1.5, spanGaps: false, points: { show: true, size: 3 }, value: (_: uPlot, v: number | null) => (v === null ? '' : now.text(v)) })),
      ],
    },
    lines as unknown as uPlot.AlignedData,
    at,
  );
  const size = new ResizeObserver(() => u.setSize({ width: at.clientWidth || 300, height: 130 }));
  size.observe(at);
  const unhook = onColours(() => u.redraw(false));
  return {
    set: (next, values) => {
      now = next;
      u.setData(values as unknown as uPlot.AlignedData);
    },
    stop: () => {
      unhook();
      size.disconnect();
      u.destroy();
      probe.remove();
    },
  };
}
