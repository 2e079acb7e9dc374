// Points in time as lines with gaps.

import type { UsagePoint } from '../../js/src/gen/tend/v1/overview_pb.js';

/** Times in seconds, and then for each line its values; null is a gap. */
export type Lines = (number | null)[][];

/** What is drawn of points, which are step seconds apart: a time in which nothing was measured is a gap. */
export function linesOf(points: UsagePoint[], step: number, values: ((p: UsagePoint) => number | undefined)[]): Lines {
  const lines: Lines = [[], ...values.map(() => [])];
  let last = 0;
  for (const p of points) {
    const at = Number(p.time?.seconds ?? 0);
    if (last && at - last > 1.5 * step) {
      lines[0]!.push(last + step);
      values.forEach((_, n) => lines[n + 1]!.push(null));
    }
    lines[0]!.push((last = at));
    values.forEach((value, n) => lines[n + 1]!.push(value(p) ?? null));
  }
  return lines;
}
