// What is much, late or changed under the page: 5,000 processes, a line without an end, any
// sizes of terminals, a clock that is set, a token that is another one.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { build } from 'esbuild';
import { until } from '../../daemon.js';
import type * as drawing from '../src/drawing.js';
import type * as sizes from '../src/sizes.js';
import type * as xterm from '../src/xterm.js';
import { browser, complaints, daemon, dir, killServer, leave, lines, loggedIn, open, start, tend, token, ui, url } from './stage.js';

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

declare const parts: typeof drawing & typeof sizes & typeof xterm; // in the browser

test('terminal: of any sizes no more is laid out at once than its bound, and of a run of them the last alone', async () => {
  const contents = ['drawing', 'sizes', 'xterm'].map((name) => `export * from './src/${name}.ts'`).join(';');
  const bundle = await build({ stdin: { contents, resolveDir: process.cwd() }, bundle: true, write: false, platform: 'browser', format: 'iife', globalName: 'parts', logLevel: 'warning' });
  const page = await browser.newPage();
  await page.goto(`${url}/-/readyz`);
  await page.evaluate(`${bundle.outputFiles[0]!.text}; globalThis.parts = parts`);
  const [kept, runs, shown, handed] = await page.evaluate(async () => {
    const term = parts.terminal(parts.drawable({ cols: 65535, rows: 65535 }));
    term.open(document.body);
    const all = new parts.Drawing(term);
    const full = () => all.output(new Uint8Array(600_000).fill(120));
    const kept: number[] = [];
    const look = () => kept.push(Math.max(...[term.buffer.active.length, term.rows + term.options.scrollback!].map((lines) => lines * term.cols)));
    for (const cols of [1000, 2, 80, 1000, 1, 65535]) {
      full();
      await all.room(0);
      look();
      // What is laid out is what is kept before, in the columns that there are then.
      const sub = term.onResize(look);
      all.size(parts.drawable({ cols, rows: 24 }));
      await all.room(0);
      sub.dispose();
    }
    const runs: string[] = [];
    const shown: string[] = [];
    term.onResize(({ cols, rows }) => runs.push(`${cols}x${rows}`));
    for (const run of [0, 1, 2]) {
      for (let n = 0; n < 10_000; n++) all.size({ cols: 2 + (n % 999), rows: 10 + run }, ({ cols, rows }) => shown.push(`${cols}x${rows}`));
      all.output(new Uint8Array([120]));
    }
    await all.room(0);
    // Of sizes with output between them few wait at a time: what is closed is soon at its end.
    let handed = 0;
    const before = runs.length;
    for (let waits = false; !waits; handed++) {
      all.size({ cols: 50 + (handed % 2), rows: 10 });
      all.output(new Uint8Array([120]));
      waits = all.waiting > 256 << 10;
    }
    all.close();
    await new Promise((ok) => setTimeout(ok));
    return [kept, runs.slice(0, before), shown, handed] as const;
  });
  assert.ok(kept.length > 10 && kept.every((cells) => cells <= 500_000), `cells: ${kept}`);
  assert.deepEqual([runs, shown], [['11x10', '11x11', '11x12'], ['11x10', '11x11', '11x12']]);
  assert.ok(handed < 10, `${handed} sizes waited`);
  await page.close();

  // The same from a process: what it had is drawn as far as can be.
  const id = await start('giant', 'read x; exit 0', '-t');
  const call = (method: string, body: object) => fetch(`${url}/tend.v1.ProcessService/${method}`, { method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` }, body: JSON.stringify({ process: { id }, ...body }) });
  assert.equal((await call('Resize', { size: { cols: 65535, rows: 65535 } })).status, 200);
  assert.equal((await call('Write', { data: 'Cg==' })).status, 200);
  await tend('wait', id);
  const own = await loggedIn();
  await own.goto(`${url}/ui/p/${id}?tab=replay`);
  await own.waitForSelector('.player [type=range]:enabled');
  await own.focus('.player [type=range]');
  await own.keyboard.press('End');
  await own.waitForSelector('.statusline :text-is("1000\u00d7250")');
  await leave(own);
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
