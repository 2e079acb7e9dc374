// Sandboxes in a real browser: what they are, what runs in them, their ports, and groups.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accessible, complaints, killServer, leave, loggedIn, says, shots, start, tend, url } from './stage.js';

// A small web server, of what every Debian has.
const serve = String.raw`exec perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1", LocalPort => 3000, ReuseAddr => 1) or die $!; while ($c = $s->accept) { while (<$c>) { last if /^\r?$/ } $b = "<h1>from inside</h1>"; print $c "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: " . length($b) . "\r\n\r\n$b"; close $c }'`;

test('sandbox: its state, time, processes and ports, whose link works; groups; over a killed server', async () => {
  await tend('sandbox', 'create', '--timeout', '2h', '--label', 'team=blue', '--public', 'blue');
  await start('outside', 'exec sleep 1000', '--label', 'team=red');
  const page = await loggedIn();
  await page.waitForSelector('.row.item:has-text("blue"):has-text("ready")');
  await says(page, '.row.item:has-text("blue")', /removed in 1 h 5\d min|removed in 2 h/);
  const id = await start('inside', serve, '--sandbox', 'blue', '--label', 'role=web');
  await page.click('.row.item:has(.badge:text-is("sandbox")) a');
  await page.waitForSelector('.row.item:has-text("inside")');
  assert.equal(await page.locator('.row.item:has-text("outside")').count(), 0, 'what runs elsewhere is not there');
  await says(page, '.head', /ready.*Ends by itself.*removed in .*isolated/s);
  // The program inside answers at the link, in a page of its own.
  await page.waitForSelector('.port:has-text("3000")');
  await killServer();
  const [opened] = await Promise.all([page.context().waitForEvent('page'), page.click('.port:has-text("3000")')]);
  await opened.waitForSelector('h1:has-text("from inside")');
  assert.match(opened.url(), /^http:\/\/3000-i[0-9a-z]{19}\.localhost:\d+\/$/);
  assert.equal(await opened.evaluate(() => document.cookie + (window.opener ?? '')), '');
  await opened.close();
  await accessible(page);
  await shots(page, 'sandbox');
  // A port of a sandbox that is not public: this browser is let in, once for a ticket, and stays so.
  await tend('sandbox', 'create', '--timeout', '2h', 'shut');
  await start('within', serve, '--sandbox', 'shut');
  const aside = await page.context().newPage();
  await aside.goto(`${url}/ui/`);
  await aside.click('.row.item:has-text("shut") a');
  await aside.waitForSelector('.port:has-text("3000")');
  const shut = await page.context().newPage();
  const link = (await aside.getAttribute('.port', 'href'))!;
  assert.equal((await shut.goto(link))?.status(), 403);
  await shut.waitForSelector('text=lets this browser in');
  await killServer();
  const [entered] = await Promise.all([page.context().waitForEvent('page'), aside.click('.port:has-text("3000")')]);
  await entered.waitForSelector('h1:has-text("from inside")');
  assert.equal(entered.url(), link);
  assert.equal(await entered.evaluate(() => document.cookie + (window.opener ?? '')), '');
  await killServer();
  assert.equal((await shut.goto(link))?.status(), 200);
  const others = await page.context().browser()!.newContext();
  assert.equal((await (await others.newPage()).goto(link))?.status(), 403);
  for (const c of [others, entered, shut, aside]) await c.close();
  await tend('sandbox', 'rm', 'shut');
  // A process says on what it listens, too.
  const box = new URL(page.url()).searchParams.get('box')!;
  await page.goto(`${url}/ui/p/${id}?box=${box}`);
  await page.waitForSelector('.port:has-text("3000")');
  await page.waitForSelector('.labels .badge:has-text("role=web")');
  // Groups by a label, which what runs in a sandbox has of it.
  await page.goto(`${url}/ui/`);
  await page.selectOption('select[aria-label="Group by"]', 'team');
  await page.waitForSelector('.row.group:has-text("team=blue")');
  const rows = (await page.$$eval('.rows .row', (all) => all.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top).map((e) => e.textContent ?? ''))).map((t) => /team=\w+|blue|inside|outside/.exec(t)?.[0]);
  assert.deepEqual(rows, ['team=blue', 'blue', 'inside', 'team=red', 'outside']);
  await shots(page, 'groups');
  await page.reload();
  await page.waitForSelector('.row.group:has-text("team=red")');
  await tend('sandbox', 'rm', 'blue');
  await page.waitForFunction(() => ![...document.querySelectorAll('.row.item .badge')].some((e) => e.textContent === 'sandbox'));
  await leave(page);
  assert.deepEqual(complaints, []);
});
