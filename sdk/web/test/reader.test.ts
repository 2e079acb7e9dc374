// A login that only reads, in a real browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type * as proofs from '../src/proof.js';
import { complaints, dir, killServer, leave, loggedIn, open, proving, shots, start, tend, url } from './stage.js';

declare const proof: typeof proofs; // in the page

test('read-only: everything is seen, nothing can be changed, and the server says no to whoever tries', async () => {
  const id = await start('watched', 'echo hello; while read line; do echo "got $line"; done', '-t', '--env', 'API_KEY=hunter2', '--cwd', dir);
  const page = await open();
  await page.goto(await tend('ui', '--read-only', '--print'));
  await page.waitForSelector('.bar .badge:has-text("read-only")');
  await page.click('.row.item:has-text("watched") a');
  await page.waitForSelector('.xterm-rows:has-text("hello")');
  await page.waitForSelector('.tty:has-text("only looks on")');
  await page.click('.screen');
  await page.keyboard.type('typed by a reader');
  await page.keyboard.press('Enter');
  assert.equal(await page.locator('.actions .danger, .actions select').count(), 0, 'there is nothing to end it with');
  await page.waitForSelector(`.facts :text-is("${dir}")`);
  assert.equal(await page.locator('a[href*="/ui/files"]').count(), 0, 'files are not for readers, so nothing leads to them');
  await killServer();
  await page.click('text=Environment');
  await page.waitForSelector('dt:has-text("API_KEY")');
  assert.equal(await page.locator('.environment button').count(), 0);
  await shots(page, 'reader');
  // Whoever calls by hand is told no, by the server.
  await proving(page);
  const call = (path: string, body: unknown) =>
    page.evaluate(
      async ([path, body]) => {
        const r = await proof.call(path!, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: body! });
        return `${r.status} ${await r.text()}`;
      },
      [path, JSON.stringify(body)],
    );
  assert.match(await call('/tend.v1.ProcessService/Get', { process: { id } }), /^200 .*API_KEY/);
  assert.doesNotMatch(await call('/tend.v1.ProcessService/Get', { process: { id } }), /hunter2/);
  for (const [path, body] of [
    ['ProcessService/Kill', { process: { id } }],
    ['ProcessService/Write', { process: { id }, data: 'eAo=' }],
    ['AdminService/OpenPage', {}],
    ['AdminService/Shutdown', {}],
    ['ProcessService/Start', { spec: { shell: 'true' } }],
  ] as const)
    assert.match(await call(`/tend.v1.${path}`, body), /^403 .*this login only reads/, path);
  // One who may do more types after all that: nothing of the reader's had come.
  const other = await loggedIn();
  await other.goto(`${url}/ui/p/${id}`);
  await other.waitForSelector('.xterm-rows:has-text("hello")');
  await other.click('.screen');
  await other.keyboard.type('typed by the owner');
  await other.keyboard.press('Enter');
  await other.waitForFunction(() => document.querySelector('.xterm-rows')?.textContent?.includes('got typed by the owner'));
  assert.doesNotMatch((await other.textContent('.xterm-rows'))!, /reader/);
  await Promise.all([leave(page), leave(other)]);
  assert.deepEqual(complaints, []);
});
