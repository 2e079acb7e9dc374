// What a login is worth to others: to a program that takes the port of tend while it is away,
// to a script that reads what the browser keeps, and where the browser has no WebCrypto.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { chromium, type Page, type Request } from 'playwright-core';
import { until } from '../../daemon.js';
import type * as proofs from '../src/proof.js';
import { complaints, daemon, dir, executable, killServer, leave, loggedIn, proving, token, ui, url } from './stage.js';

declare const proof: typeof proofs; // in the page

interface Seen {
  method: string;
  path: string;
  headers: http.IncomingHttpHeaders;
  body: string;
}

/** A request with both halves of a login. */
const proves = ({ headers }: Seen) => headers['tend-page'] !== undefined && headers.cookie !== undefined;

/** The keys of logins that a browser keeps, where they can be read. */
const keptBy = (page: Page) =>
  page.evaluate(async () => {
    const done = <T>(asked: IDBRequest<T>) =>
      new Promise<T>((ok, fail) => {
        asked.onsuccess = () => ok(asked.result);
        asked.onerror = () => fail(asked.error!);
      });
    const db = await done(indexedDB.open('tend'));
    const all = (await done(db.transaction('login').objectStore('login').getAll())) as { key: unknown }[];
    db.close();
    return all.map(({ key }) => (key instanceof Uint8Array ? new TextDecoder().decode(key) : String(key)));
  });

/** Sends what was seen to the daemon, as it was. */
function replay({ method, path, headers, body }: Seen): Promise<{ status: number; text: string }> {
  return new Promise((ok, fail) => {
    const { hostname, port } = new URL(url);
    const req = http.request({ hostname, port, method, path, headers, agent: false }, (res) => {
      const status = res.statusCode!;
      if (status === 200 && path !== '/ui/session') return ok({ status, text: '' }), res.destroy(); // it may have no end
      text(res).then((text) => ok({ status, text }), fail);
    });
    req.on('error', fail);
    req.end(body);
  });
}

test('login: what is sent to a program that has the port while tend is away logs nobody in', async () => {
  const page = await loggedIn();
  await proving(page);
  const file = path.join(dir, 'started');
  // What the program can know is the run of the daemon before.
  const before = (await fetch(`${url}/ui/session`)).headers.get('WWW-Authenticate') ?? '';
  const seen: Seen[] = [];
  await daemon.restart(async () => {
    const thief = http.createServer((req, res) => {
      void text(req).then((body) => {
        seen.push({ method: req.method!, path: req.url!, headers: req.headers, body });
        // Asked for a proof for another run each time, the page sends many.
        const wanted = seen.length % 2 ? before : `Tend-Page run="RUN${seen.length}", least="${seen.length}"`;
        res.writeHead(req.url === '/ui/session' ? 200 : 503, { 'Content-Type': 'application/json', 'WWW-Authenticate': wanted });
        res.end(JSON.stringify({ needed: true, in: true, reads: false }));
      });
    });
    await new Promise<void>((ok) => thief.listen(Number(new URL(url).port), '127.0.0.1', ok));
    // Of itself the page asks for its overview, again and again.
    await until(() => seen.filter((s) => s.path.includes('OverviewService') && proves(s)).length >= 5, 'the page asks the program');
    await page.evaluate(async (file) => {
      const headers = { 'Content-Type': 'application/json' };
      const body = JSON.stringify({ spec: { argv: ['touch', file] } });
      await proof.call('/tend.v1.ProcessService/Start', { method: 'POST', headers, body });
      await proof.call(`/tend.v1.FileService/Content?path=${encodeURIComponent(file)}`, { method: 'PUT', body: 'written' });
      await proof.call('/ui/readers', { method: 'DELETE' });
      await proof.call('/ui/session');
      await proof.call('/ui/session', { method: 'DELETE' });
    }, file);
    thief.closeAllConnections();
    await new Promise((ok) => thief.close(ok));
  });
  for (const one of seen) {
    const { status, text } = await replay(one);
    const in_ = one.path === '/ui/session' && one.method === 'GET' ? (JSON.parse(text) as { in: boolean }).in : status !== 401;
    assert.equal(in_, false, `${one.method} ${one.path} with ${one.headers['tend-page']} is ${status}`);
  }
  const calls = ['POST /tend.v1.ProcessService/Start', 'PUT /tend.v1.FileService/Content'];
  for (const one of [...calls, 'DELETE /ui/readers', 'GET /ui/session', 'DELETE /ui/session']) {
    const there = seen.some((s) => `${s.method} ${s.path}`.startsWith(one) && proves(s));
    assert.ok(there, `${one} was seen, with cookie and proof`);
  }
  assert.equal(fs.existsSync(file), false, 'nothing of it was done');
  // The page itself goes on, and is logged in still.
  await page.waitForSelector('.connection:has-text("live")');
  assert.match(await page.evaluate(async () => await (await proof.call('/ui/session')).text()), /"in":true/);
  await page.reload();
  await page.waitForSelector('.overview');
  await leave(page);
});

test('login: what the browser keeps of it gives no key away', async () => {
  const page = await loggedIn();
  const kept = await page.evaluate(async () => {
    const db = await new Promise<IDBDatabase>((ok, fail) => {
      const opening = indexedDB.open('tend');
      opening.onsuccess = () => ok(opening.result);
      opening.onerror = () => fail(opening.error!);
    });
    const all = db.transaction('login').objectStore('login').getAll();
    await new Promise((ok) => (all.onsuccess = ok));
    const logins = all.result as { tag: string; key: CryptoKey }[];
    const how = (format: 'raw' | 'jwk') =>
      crypto.subtle.exportKey(format, logins[0]!.key).then(() => 'exported', (err: Error) => err.name);
    return {
      logins: logins.map((l) => [Object.keys(l).sort(), l.key instanceof CryptoKey, l.key.extractable, l.key.usages]),
      exported: [await how('raw'), await how('jwk')],
      stores: [...db.objectStoreNames],
      texts: [...Object.values({ ...localStorage }), ...Object.values({ ...sessionStorage }), document.cookie] as string[],
    };
  });
  assert.deepEqual(kept.logins, [[['key', 'tag'], true, false, ['sign']]]);
  assert.deepEqual([kept.exported, kept.stores], [['InvalidAccessError', 'InvalidAccessError'], ['login']]);
  assert.deepEqual(kept.texts.filter((t) => /[0-9a-f]{32}|[0-9A-Z]{26}/.test(t)), []);
  await page.click('text=Log out');
  await page.waitForSelector('#token');
  assert.deepEqual(await keptBy(page), []);
  await leave(page);
});

test('login: by plain HTTP from another machine, where the browser has no WebCrypto, it works all the same', async () => {
  const args = ['--no-sandbox', '--disable-gpu', '--host-resolver-rules=MAP tend.test 127.0.0.1'];
  const other = await chromium.launch({ executablePath: executable, args });
  try {
    const page = await (await other.newContext()).newPage();
    page.setDefaultTimeout(180_000);
    await page.goto(ui.replace('127.0.0.1', 'tend.test'));
    assert.equal(await page.evaluate(() => isSecureContext || crypto.subtle !== undefined), false);
    await page.fill('#token', token);
    await page.keyboard.press('Enter');
    await page.waitForSelector('.overview');
    await killServer();
    await page.reload();
    await page.waitForSelector('.connection:has-text("live")');
    // Nothing that is sent has the key.
    const [key] = await keptBy(page);
    assert.match(key!, /^[0-9a-f]{64}$/);
    const sent: string[] = [];
    const note = async (r: Request) => sent.push(JSON.stringify(await r.allHeaders()) + (r.postData() ?? ''));
    page.on('request', (r) => void note(r).catch(() => undefined));
    await page.click('a:text-is("Files")');
    await page.waitForSelector('[role=tree]');
    await until(() => sent.some((s) => s.includes('tend-page')), 'something is sent');
    assert.deepEqual(sent.filter((s) => s.includes(key!)), []);
  } finally {
    await other.close();
  }
});

test('login: several windows at once, and one whose clock is set back, stay logged in', async () => {
  const page = await loggedIn();
  const others = await Promise.all([1, 2].map(async () => {
    const other = await page.context().newPage();
    await other.goto(ui);
    await other.waitForSelector('.overview');
    return other;
  }));
  await others[0]!.evaluate(() => void (Date.now = () => 1000));
  // More than the server remembers, in each: the counts of one are below the others' then.
  const statuses = await Promise.all([page, ...others].map(async (one) => {
    await proving(one);
    return one.evaluate(async () => {
      const all = new Set<number>();
      const hello = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' };
      for (let n = 0; n < 800; n++) all.add((await proof.call('/tend.v1.ProcessService/Hello', hello)).status);
      return [...all];
    });
  }));
  assert.deepEqual(statuses, [[200], [200], [200]]);
  await leave(page);
});

test('no page of a login has run what is foreign, or asked another server', () => assert.deepEqual(complaints, []));
