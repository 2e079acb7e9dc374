// What is much, late or changed under the page: 5,000 processes, a line without an end, a
// clock that is set, a token that is another one.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { until } from '../../daemon.js';
import { complaints, daemon, dir, killServer, leave, lines, loggedIn, open, start, tend, token, ui, url } from './stage.js';

/** CRC-32C, which the records of a journal end with (package spool). */
function crc32c(data: Uint8Array): number {
  let crc = ~0;
  for (const byte of data) {
    crc ^= byte;
    for (let n = 0; n < 8; n++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc >>> 0;
}

/** Makes n processes that have ended, by what one has left: their names are of its length and count. */
async function crowd(n: number): Promise<(i: number) => string> {
  const name = (i: number) => `crowd-${String(i).padStart(5, '0')}`;
  const id = await tend('run', '-d', '--name', name(0), 'true');
  await tend('wait', id);
  const spool = path.join(daemon.stateDir, 'spool');
  const journal = fs.readFileSync(path.join(spool, id, 'journal'));
  const end = journal.readUInt32LE(0); // of its spec, which has ID and name
  const mark = id.at(-6) === 'a' ? 'b' : 'a'; // so that none is the one that there is
  for (let i = 1; i < n; i++) {
    const other = `${id.slice(0, -6)}${mark}${String(i).padStart(5, '0')}`;
    const copy = Buffer.from(journal);
    for (const [was, is] of [[id, other], [name(0), name(i)]] as const) {
      const at = copy.indexOf(was);
      if (at >= 0) copy.write(is, at);
    }
    copy.writeUInt32LE(crc32c(copy.subarray(0, end - 4)), end - 4);
    fs.mkdirSync(path.join(spool, other), { mode: 0o700 });
    fs.writeFileSync(path.join(spool, other, 'journal'), copy, { mode: 0o600 });
  }
  await killServer(); // the next one looks at the spool
  return name;
}

test('overview: of 5,000 processes only those that are seen are drawn; filter, sort and what is new work', async () => {
  const name = await crowd(5000);
  const page = await loggedIn();
  const tab = (n: string) => page.waitForSelector(`.filters button:has-text("Processes") small:text-is("${n}")`);
  await tab('5000');
  await start('late', 'exec sleep 1000');
  await tab('5001');
  const rows = () => page.$$eval('.row.item', (all) => all.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top).map((r) => r.querySelector('a')!.textContent!));
  assert.equal((await rows())[0], 'late');
  assert.ok((await rows()).length < 100, 'only what is seen is there');
  await page.click('.headings >> text=Name');
  await page.waitForFunction((first) => document.querySelector('.row.item a')?.textContent === first, name(0));
  // Scrolling by a screen makes the lines of about a screen.
  const made = await page.evaluate(async () => {
    let n = 0;
    const watch = new MutationObserver((all) => all.forEach((m) => (n += [...m.addedNodes].filter((a) => a instanceof Element && a.matches('.row.item')).length)));
    watch.observe(document.body, { childList: true, subtree: true });
    for (let k = 0; k < 10; k++) {
      scrollBy(0, innerHeight);
      await new Promise((ok) => requestAnimationFrame(() => requestAnimationFrame(ok)));
    }
    watch.disconnect();
    return n;
  });
  // About 154 lines came into view; with all that are there made anew each time it is more than twice as many.
  assert.ok(made < 220, `${made} lines were made for ten screens`);
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await page.waitForSelector('.row.item a bdi:text-is("late")');
  assert.ok((await rows()).includes(name(4999)));
  await page.fill('#search', '04999');
  await page.waitForFunction((name) => [...document.querySelectorAll('.row.item a')].map((a) => a.textContent).join() === name, name(4999));
  await page.click('.row.item a');
  await page.waitForSelector(`h1:has-text("${name(4999)}")`);
  await page.waitForSelector('text=It has written nothing.');
  await leave(page);
});

test('output: a line of 100 MB is broken, and opens anywhere', async () => {
  const id = await start('endless', "head -c 100000000 /dev/zero | tr '\\0' x", '--keep', '1GiB');
  await tend('wait', id);
  const page = await loggedIn();
  for (const at of ['', '&at=50000000', '&at=0']) {
    await page.goto(`${url}/ui/p/${id}?s=stdout${at}`);
    await page.waitForSelector(at ? '.line.marked' : '.line');
    const all = await lines(page);
    assert.ok(all.length <= 300 && all.every((l) => /^x{1,16384}$/.test(l)), `lines of ${all.map((l) => (/^x*$/.test(l) ? l.length : l.slice(0, 50)))}`);
  }
  await leave(page);
});

test('a clock that is set changes no age, and nothing else', async () => {
  const page = await open();
  await page.addInitScript(`{
    const real = Date;
    globalThis.setBy = 0;
    globalThis.Date = class extends real {
      constructor(...of) { super(...(of.length ? of : [real.now() + setBy])); }
      static now() { return real.now() + setBy; }
    };
  }`);
  await page.goto(ui);
  await page.fill('#token', token);
  await page.keyboard.press('Enter');
  const first = await start('first', 'exec sleep 1000');
  const since = (name: string) => page.textContent(`.row.item:has(a bdi:text-is("${name}")) .cell-since`);
  await page.waitForSelector('.row.item a bdi:text-is("first")');
  for (const [n, hours] of [48, -48].entries()) {
    const was = await since('first');
    await page.evaluate(`setBy = ${hours * 3600_000}`);
    await until(async () => (await since('first')) !== was, 'it is drawn again');
    assert.match((await since('first'))!, /^\d+ (s|min)$/);
    await start(`after-${n}`, 'exec sleep 1000');
    await page.waitForSelector(`.row.item a bdi:text-is("after-${n}")`);
    assert.match((await since(`after-${n}`))!, /^\d+ (s|min)$/);
  }
  await page.goto(`${url}/ui/p/${first}`);
  await page.waitForSelector('.connection:has-text("live")');
  await leave(page);
});

// The last: it takes the token from the others.
test('terminal: the token becomes another one while it is open; the process goes on, and a login goes back to it', async () => {
  const id = await start('talk', 'stty -echo; while read line; do echo "got $line"; done', '-t');
  const page = await loggedIn();
  await page.goto(`${url}/ui/p/${id}`);
  const says = (text: string) => page.waitForFunction((text) => document.querySelector('.xterm-rows')?.textContent?.includes(text), text);
  await page.waitForSelector('.xterm-rows');
  await page.click('.screen');
  await page.keyboard.type('one');
  await page.keyboard.press('Enter');
  await says('got one');
  fs.writeFileSync(path.join(dir, 'token'), 'another-token-of-this-test');
  await killServer();
  await page.waitForSelector('#token');
  await page.fill('#token', token);
  await page.keyboard.press('Enter');
  await page.waitForSelector('#error:has-text("not the token")');
  await page.fill('#token', 'another-token-of-this-test');
  await page.keyboard.press('Enter');
  await says('got one');
  assert.match(page.url(), new RegExp(`/ui/p/${id}$`));
  await page.click('.screen');
  await page.keyboard.type('two');
  await page.keyboard.press('Enter');
  await says('got two');
  await leave(page);
});

test('no page under strain has run what is foreign, or asked another server', () => assert.deepEqual(complaints, []));
