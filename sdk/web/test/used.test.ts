// What was used over time, in a real browser: by the machine, a service and a sandbox; gaps where nothing was measured.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import type { UsagePoint } from '../../js/src/gen/tend/v1/overview_pb.js';
import { linesOf } from '../src/gaps.js';
import { accessible, complaints, daemon, leave, loggedIn, says, shots, tend, ui } from './stage.js';

test('a time without points is a gap, and not a line', () => {
  const points = [60, 120, 300, 360, 421].map((s) => ({ time: { seconds: BigInt(s), nanos: 0 }, cpu: s }) as unknown as UsagePoint);
  assert.deepEqual(linesOf(points, 60, [(p) => p.cpu, () => undefined]), [
    [60, 120, 180, 300, 360, 421],
    [60, 120, null, 300, 360, 421],
    [null, null, null, null, null, null],
  ]);
  assert.deepEqual(linesOf([], 60, [(p) => p.cpu]), [[], []]);
});

/** Writes points of the last minutes, as internal/server/usage keeps them. */
function keep(key: string, minutes: number, cpu: (ago: number) => number | undefined): void {
  const file = path.join(daemon.stateDir, 'usage', 'points');
  const slot = Buffer.alloc(12 << 10);
  slot.writeUInt16LE(key.length, 0);
  slot.write(key, 2);
  const now = Math.floor(Date.now() / 1000);
  for (let ago = 0; ago < minutes; ago++) {
    const value = cpu(ago);
    if (value === undefined) continue;
    const at = now - ago * 60;
    const to = 512 + (Math.floor(at / 60) % 60) * 32;
    slot.writeUInt32LE(at, to);
    slot.writeUInt32LE(value, to + 4);
    slot.writeBigUInt64LE(3n << 30n, to + 8);
    slot.writeBigUInt64LE(2048n, to + 16);
    slot.writeBigUInt64LE(1024n, to + 24);
  }
  fs.writeFileSync(file, slot);
}

test('use over time: graphs of the last hour, an address to send, a service, a phone', async () => {
  await daemon.restart(async () => keep('machine', 55, (ago) => (ago > 20 && ago < 35 ? undefined : ago === 40 ? 800 : 250)));
  const page = await loggedIn();
  assert.equal(await page.locator('.graphs').count(), 0, 'nothing is loaded before it is asked for');
  await page.click('.used button:text-is("Last hour")');
  await says(page, '.graphs figure:has-text("CPU")', /CPU 25 %, at most 80 %/);
  await says(page, '.graphs figure:has-text("Memory")', /at most 3\.0 GiB/);
  await says(page, '.graphs figure:has-text("Network")', /Received: .*2\.0 KiB\/s.*Sent: .*1\.0 KiB\/s/);
  await page.waitForFunction(() => document.querySelectorAll('.graphs canvas').length === 3);
  assert.match(page.url(), /\?used=hour$/);
  // In the gap nothing is drawn, and beside it is a line: what has the colour of the line, by columns.
  await page.waitForFunction(() => {
    const canvas = document.querySelector<HTMLCanvasElement>('.graphs canvas')!;
    const [w, h] = [canvas.width, canvas.height];
    const data = canvas.getContext('2d')!.getImageData(0, 0, w, h).data;
    const left = Math.round((70 / canvas.clientWidth) * w);
    const inked = Array.from({ length: 60 }, (_, m) => {
      let n = 0;
      for (let x = left + Math.round(((w - left) * m) / 60); x < left + Math.round(((w - left) * (m + 1)) / 60); x++)
        for (let y = 0; y < h; y++) {
          const i = 4 * (y * w + x);
          if (data[i + 3]! > 128 && data[i + 1]! - data[i]! > 60) n++; // green
        }
      return n;
    });
    return inked.slice(28, 36).every((n) => n === 0) && [...inked.slice(8, 22), ...inked.slice(42, 55)].every((n) => n > 0);
  });
  await accessible(page);
  await shots(page, 'used');
  // The address shows the same, to whoever follows it.
  await page.goto(`${ui}?used=day`);
  await page.waitForSelector('.used button[aria-pressed="true"]:text-is("Last day")');
  await says(page, '.used', /measured yet|CPU .* at most/);
  await page.click('.used button:text-is("Last day")');
  await page.waitForFunction(() => !location.search.includes('used'));
  await leave(page);
  // Of a sandbox that was just made nothing has been measured, which is said. A phone has room for all.
  await tend('sandbox', 'create', '--timeout', '1h', 'fresh');
  const phone = await loggedIn({ width: 360, height: 740 });
  await phone.click('.row.item:has-text("fresh") a');
  await phone.click('.used button:text-is("Last hour")');
  await says(phone, '.used', /Nothing has been measured yet|CPU .* at most/);
  assert.ok(await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing sticks out');
  await leave(phone);
  assert.deepEqual(complaints, []);
});
