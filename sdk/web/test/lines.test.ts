// Output cut into lines, in whatever pieces it comes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Stream } from '../../js/src/gen/tend/v1/spec_pb.js';
import { Cutter, type Line, longest, textOf } from '../src/lines.js';

test('a line is broken where it is full, at the same places in all pieces', () => {
  for (const [what, text] of [
    ['one byte a letter', `${'x'.repeat(5 * longest)}\nshort\n`],
    ['three bytes a letter', `${'\u20ac'.repeat(2 * longest)}\nshort\n`],
    ['just full', `${'x'.repeat(longest - 1)}\n${'y'.repeat(longest)}\nshort\n`],
  ] as const) {
    const bytes = new TextEncoder().encode(text);
    for (const piece of [longest - 1, longest, longest + 1, 3 * longest, 1000, bytes.length]) {
      const cutter = new Cutter(Stream.STDOUT, 0);
      const lines: Line[] = [];
      for (let at = 0; at < bytes.length; at += piece) lines.push(...cutter.add(bytes.subarray(at, at + piece), 0));
      assert.equal(cutter.rest(), undefined);
      assert.ok(lines.every((l) => l.to - l.from <= longest), `${what} by ${piece}: ${lines.map((l) => l.to - l.from)}`);
      assert.ok(lines.map((l) => textOf(l) + (l.open ? '' : '\n')).join('') === text, `${what} by ${piece}`);
      assert.ok(lines.every((l, n) => l.from === (lines[n - 1]?.to ?? 0)), 'no byte is missing');
    }
  }
});
