// Files of the machine and of a sandbox, as a person reads, changes, uploads and downloads them,
// with the server killed meanwhile.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { until } from '../../daemon.js';
import type * as proofs from '../src/proof.js';
import { accessible, complaints, dir, killServer, leave, loggedIn, proving, says, shots, tend, url } from './stage.js';

declare const proof: typeof proofs; // in the page

const home = path.join(dir, 'home');
const at = (...names: string[]) => path.join(home, ...names);
const put = (name: string, data: string | Buffer) => (fs.mkdirSync(path.dirname(at(name)), { recursive: true }), fs.writeFileSync(at(name), data));
const read = (name: string) => fs.readFileSync(at(name), 'utf8');
const address = (name: string, more = '') => `${url}/ui/files?path=${encodeURIComponent(at(name))}${more}`;

put('src/main.py', 'def main():\r\n    print("hello")\r\n');
put('notes.txt', Array.from({ length: 400 }, (_, n) => `line ${n + 1}\n`).join(''));
put('marked.txt', '\ufeffone\n');
put('data.bin', Buffer.from([0, 1, 2, 255]));
put('latin.txt', Buffer.from('caf\xe9\n', 'latin1'));
put('huge.log', 'x'.repeat(79).concat('\n').repeat(100_000));
put('evil.html', '<!doctype html><script>alert("html")</script><img src=x onerror=alert(1)>');
put('evil.svg', '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20" onload="alert(\'svg\')"><script>alert("svg")</script><rect width="40" height="20" fill="red"/></svg>');
put('<img src=x onerror=alert(2)> \u202egnp.txt', 'a hostile name');
put('deep/er/file', 'deep');

const row = (name: string) => `.treerow:has(bdi:text-is("${name}"))`;
const editorHas = (page: Page, text: string) => page.waitForSelector(`.editor .cm-content:has-text("${text}")`);

test('files are read and changed, and nobody overwrites what another has written', async () => {
  const page = await loggedIn();
  await page.goto(address(''));
  await page.waitForSelector(row('src'));
  assert.equal(await page.$eval('.treerow', (e) => e.textContent?.includes('deep')), true, 'directories come first');
  await accessible(page);
  await shots(page, 'files-directory');
  await page.click(`${row('src')} i`);
  await page.click(row('main.py'));
  await editorHas(page, 'print');
  assert.equal(new URL(page.url()).searchParams.get('path'), at('src/main.py'), 'the file is in the address');
  await accessible(page);
  await shots(page, 'files-editor');

  // CR LF stays what it is, and the server may die before.
  await page.click('.editor .cm-content');
  await page.keyboard.press('Control+Home');
  await killServer();
  await page.keyboard.type('# mine\n');
  await page.waitForSelector('text=not saved yet');
  await page.keyboard.press('Control+s');
  await page.waitForSelector('.said:text-is("Saved")');
  assert.equal(read('src/main.py'), '# mine\r\ndef main():\r\n    print("hello")\r\n');

  // Another one writes meanwhile.
  fs.writeFileSync(at('src/main.py'), 'theirs\n');
  await page.keyboard.type('# again\n');
  await page.keyboard.press('Control+s');
  await page.waitForSelector('.conflict');
  assert.equal(read('src/main.py'), 'theirs\n');
  await shots(page, 'files-conflict');

  // What is not saved is there again when one comes back.
  await page.click(row('notes.txt'));
  await editorHas(page, 'line 1');
  await page.click(row('main.py'));
  await editorHas(page, '# again');
  await page.click('text=Load what is there');
  await editorHas(page, 'theirs');
  await page.click('.editor .cm-content');
  await page.keyboard.press('Control+Home');
  await page.keyboard.type('and ');
  fs.writeFileSync(at('src/main.py'), 'theirs anew\n');
  await page.keyboard.press('Control+s');
  await page.click('text=Write mine over it');
  await page.waitForSelector('.said:text-is("Saved")');
  assert.equal(read('src/main.py'), 'and theirs\n');

  // A byte order mark stays at the beginning, whatever is typed before the first letter.
  await page.goto(address('marked.txt'));
  await editorHas(page, 'one');
  await page.click('.editor .cm-content');
  await page.keyboard.press('Control+Home');
  await page.keyboard.type('# ');
  await page.keyboard.press('Control+s');
  await page.waitForSelector('.said:text-is("Saved")');
  assert.equal(read('marked.txt'), '\ufeff# one\n');

  // A line can be sent.
  await page.goto(address('notes.txt', '&line=300'));
  await page.waitForSelector('.editor .cm-marked:has-text("line 300")');
  await page.click('.editor .cm-lineNumbers .cm-gutterElement:has-text("302")');
  await page.waitForSelector('.editor .cm-marked:has-text("line 302")');
  await page.waitForURL(/line=302/);
  await leave(page);
});

test('what is no text, too large or hostile is said, and runs nowhere', async () => {
  const page = await loggedIn();
  await page.goto(address('data.bin'));
  await page.waitForSelector('text=It is not text: it has NUL bytes');
  await page.click(row('latin.txt'));
  await page.waitForSelector('text=not text in UTF-8');
  await page.click(row('huge.log'));
  await page.waitForSelector('text=this is the first 2.0 MiB');
  assert.equal(await page.$('text=Save'), null, 'a part is not saved');
  const [saved] = await Promise.all([page.waitForEvent('download'), page.click('.chosen .toolbar >> text=Download')]);
  assert.equal(fs.readFileSync((await saved.path())!).compare(fs.readFileSync(at('huge.log'))), 0);
  await page.click(row('evil.html'));
  await editorHas(page, '<script>');
  await page.click(row('evil.svg'));
  await page.waitForSelector('text=40\u00d720');
  await shots(page, 'files-picture');
  await page.click('.chosen >> text=Source');
  await editorHas(page, '<script>');
  await page.click('.treerow:has-text("hostile"), .treerow:has-text("onerror")');
  await editorHas(page, 'a hostile name');
  await says(page, 'h1', /\u2039U\+202E\u203a/);
  // Without the page's proof a browser gets nothing; with it, nothing that runs.
  await proving(page);
  const content = `/tend.v1.FileService/Content?path=${encodeURIComponent(at('evil.html'))}`;
  const [plain, shown] = await page.evaluate(async (content) => {
    const res = await proof.call(content);
    return [(await fetch(content)).status, [res.status, res.headers.get('Content-Type'), res.headers.get('Content-Disposition'), res.headers.get('Content-Security-Policy')]];
  }, content);
  assert.equal(plain, 401);
  assert.deepEqual(shown, [200, 'application/octet-stream', 'attachment; filename=evil.html', "sandbox; default-src 'none'"]);
  await page.goto(address('gone'));
  await page.waitForSelector('text=There is no such file');
  await leave(page);
});

test('uploads: by the button, dragged, stopped, over a killed server; nothing is there by halves', async () => {
  fs.mkdirSync(at('up'));
  const big = path.join(dir, 'big.dat');
  fs.writeFileSync(big, Buffer.alloc(24 << 20, 'tend'));
  const page = await loggedIn();
  await page.goto(address('up'));
  await page.waitForSelector('text=Drop files');
  const network = await page.context().newCDPSession(page);
  const slow = (on: boolean) => network.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: on ? 2 << 20 : -1 });
  await network.send('Network.enable');
  const sending = () => page.waitForFunction(() => (document.querySelector('.uploads progress') as HTMLProgressElement | null)?.value);
  await slow(true);
  await page.setInputFiles('input[type=file]', big);
  await sending();
  assert.deepEqual(fs.readdirSync(at('up')).filter((n) => !n.startsWith('.tend-')), []);
  await page.click('.uploads [aria-label^=Stop]');
  await page.waitForSelector('text=nothing was written');
  await until(() => fs.readdirSync(at('up')).length === 0, 'nothing is left of what was stopped');
  await page.setInputFiles('input[type=file]', big);
  await sending();
  await killServer();
  await slow(false);
  await page.waitForSelector('.uploads .state.ok');
  assert.deepEqual(fs.readdirSync(at('up')), ['big.dat']);
  assert.equal(fs.readFileSync(at('up/big.dat')).compare(fs.readFileSync(big)), 0);
  await page.waitForSelector(row('big.dat'));

  // Dragged, one of which is there already.
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(['dropped'], 'dropped.txt'));
    data.items.add(new File(['smaller'], 'big.dat'));
    const over = document.querySelector('.drop')!;
    for (const type of ['dragover', 'drop']) over.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
  });
  await page.waitForSelector('.uploads >> text=there is one already');
  await shots(page, 'files-uploads');
  assert.equal(fs.statSync(at('up/big.dat')).size, 24 << 20);
  await page.click('.uploads >> text=Replace it');
  await until(() => read('up/big.dat') === 'smaller' && read('up/dropped.txt') === 'dropped', 'both have come');

  // Made, moved and removed.
  await page.click('text=New directory');
  await page.fill('#newname', 'below');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.chosen h1:has-text("below")');
  await page.click('text=New file');
  await page.fill('#newname', 'new.md');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.chosen h1:has-text("new.md")');
  await page.click('.filehead >> text=Move');
  await page.fill('#newname', at('up/moved.md'));
  await page.keyboard.press('Enter');
  await page.waitForSelector('.chosen h1:has-text("moved.md")');
  await page.click('.filehead .danger');
  await page.click('dialog .danger');
  await until(() => fs.readdirSync(at('up')).sort().join() === 'below,big.dat,dropped.txt', 'it is removed');
  await page.goto(address('up'));
  const [saved] = await Promise.all([page.waitForEvent('download'), page.click('text=Download as tar')]);
  assert.equal(saved.suggestedFilename(), 'up.tar');
  const names = execFileSync('tar', ['-tf', (await saved.path())!], { encoding: 'utf8' });
  assert.equal(names.split('\n').sort().join(' ').trim(), 'up/below/ up/big.dat up/dropped.txt');
  await leave(page);
});

test('100,000 files in a directory, by mouse, filter and keys; a sandbox has its own', async () => {
  fs.mkdirSync(at('many'));
  execFileSync('sh', ['-c', 'seq -f f%06g 1 100000 | xargs touch'], { cwd: at('many') });
  const page = await loggedIn({ width: 1000, height: 700 });
  await page.goto(address('many'));
  await page.waitForSelector('text=100,000 entries');
  await page.waitForSelector(row('f000001'));
  await page.focus('[role=tree]');
  await page.keyboard.press('End');
  await page.waitForSelector(`${row('f100000')}.at`);
  assert.ok((await page.$$('.treerow')).length < 100, 'only what is seen is there');
  await page.fill('#search', 'F04999');
  await page.waitForSelector('text=10 entries found');
  await page.focus('[role=tree]');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.chosen h1:has-text("f049991")');
  fs.rmSync(at('many'), { recursive: true });

  const { id } = JSON.parse(await tend('sandbox', 'create', '--json', 'box')) as { id: string };
  await page.goto(`${url}/ui/files?box=${id}`);
  await page.click('text=New file');
  await page.fill('#newname', 'inside.txt');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.chosen h1:has-text("inside.txt")');
  await page.waitForFunction(() => document.querySelector<HTMLSelectElement>('select[aria-label=Place]')!.selectedOptions[0]!.textContent === 'box');
  await page.click('.editor .cm-content');
  await page.keyboard.type('of the box');
  await page.keyboard.press('Control+s');
  await page.waitForSelector('.said:text-is("Saved")');
  assert.equal(await tend('sandbox', 'exec', 'box', '--', 'cat', 'inside.txt'), 'of the box');
  await page.setViewportSize({ width: 360, height: 740 });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing is wider than a phone');
  await leave(page);
});

test('no page has run what is foreign, or asked another server', () => assert.deepEqual(complaints, []));
