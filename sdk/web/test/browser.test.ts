// The page in a real browser, on a real tend whose server is killed meanwhile.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { until } from '../../daemon.js';
import { accessible, complaints, dir, killServer, killServerDuring, leave, lines, loggedIn, open, says, shots, start, tend, token, ui, url } from './stage.js';

test('login: a wrong token, the right one, a killed server, logging out', async () => {
  const page = await open();
  await page.goto(`${ui}?kind=process`);
  await page.fill('#token', 'wrong');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#error:has-text("not the token")');
  await accessible(page);
  await page.fill('#token', token);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.overview');
  assert.match(page.url(), /kind=process/, 'the login leads to where one wanted to be');
  assert.equal(await page.evaluate(() => document.cookie), '', 'scripts read no cookie');
  await killServer();
  await page.reload();
  await page.waitForSelector('.overview');
  const other = await page.context().newPage();
  await other.goto(ui);
  await other.waitForSelector('.overview');
  await page.click('text=Log out');
  await page.waitForSelector('#token');
  await other.waitForSelector('#token');
  await leave(page);
});

test('login: a page whose scripts cannot be fetched in that moment comes all the same', async () => {
  const page = await open();
  let asked = 0;
  await page.route(/\/ui\/main-[^/]*\.js$/, (r) => (asked++ < 2 ? r.abort('connectionreset') : r.continue()));
  await page.goto(ui);
  await page.waitForSelector('#token');
  assert.ok(asked > 2, 'it was not to be had twice: for the preload and for the import');
  await leave(page);
});

test('login: tend ui gives an address that logs in once', async () => {
  const address = await tend('ui', '--print');
  assert.match(address, /#code=/);
  const page = await open();
  await page.goto(address);
  await page.waitForSelector('.overview');
  assert.doesNotMatch(page.url(), /code/);
  const late = await open();
  await late.goto(address);
  await late.waitForSelector('#error:has-text("has been used")');
  await Promise.all([leave(page), leave(late)]);
});

test('overview: what is broken comes first, live, also after a killed server; the address keeps the filter', async () => {
  const page = await loggedIn();
  await start('steady', 'exec sleep 1000');
  await page.waitForSelector('.row.item:has-text("steady")');
  await killServer();
  await start('ends', 'exit 3'); // nobody wants it to run
  await page.waitForSelector('.row.item:has-text("ends") .state.done');
  const file = path.join(dir, 'breaks.yaml');
  fs.writeFileSync(file, 'services: {breaks: {command: exit 3, restart: never}}\n');
  await tend('up', '-d', '-f', file);
  await page.waitForSelector('.row.item:has-text("breaks") .state.broken');
  const first = () => page.$$eval('.row.item', (rows) => rows.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)[0]?.textContent ?? '');
  assert.match(await first(), /breaks/);
  await accessible(page);
  await page.waitForSelector('.connection:has-text("live")');
  await page.keyboard.press('/');
  await page.keyboard.type('stead');
  await page.waitForFunction(() => document.querySelectorAll('.row.item').length === 1);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll('.row.item').length === 1);
  await page.fill('#search', 'nothing has this name');
  await page.waitForSelector('text=Nothing matches');
  await page.click('text=Show everything');
  await page.keyboard.press('g');
  await page.keyboard.press('b');
  await page.waitForURL(/kind=sandbox/);
  await tend('down');
  await leave(page);
});

test('hostile names and output are shown and do nothing', async () => {
  const script = '<script>alert(1)</script><img src=x onerror=alert(2)>';
  const id = await tend('run', '-d', '--name', `${script} \u202egnp.exe`, '--', 'printf', `${script}\\n\\033]0;title\\007\\033[2J\\033[31mred\\033[0m \\001 \\342\\200\\256txet \\377 end\\n`);
  const page = await loggedIn();
  await page.waitForSelector('.row.item:has-text("onerror")');
  await page.goto(`${url}/ui/p/${id}`);
  await page.waitForFunction(() => document.querySelectorAll('.scroll .line').length === 2);
  const [markup, marks] = await lines(page);
  assert.equal(markup, script);
  assert.match(marks!, /^red \u2401 \u2039U\+202E\u203atxet \ufffd end$/);
  await says(page, 'h1', /\u2039U\+202E\u203agnp\.exe$/);
  assert.equal(await page.$$eval('.output img, .output script, h1 img', (all) => all.length), 0);
  await leave(page);
});

test('output: follows over a killed server, without a gap and without a line twice', async () => {
  const go = path.join(dir, 'go');
  const id = await start('counter', `n=0; while [ $n -lt 300 ]; do n=$((n+1)); echo "line $n"; [ $n = 150 ] && while [ ! -e ${go} ]; do sleep 0.05; done; done; echo over >&2; exec sleep 1000`);
  const page = await loggedIn();
  await page.goto(`${url}/ui/p/${id}`);
  await page.waitForSelector('.line:has-text("line 150")');
  await killServer();
  fs.writeFileSync(go, '');
  await page.waitForSelector('.line.stderr:has-text("over")');
  const all = (await lines(page)).filter((l) => l.startsWith('line '));
  assert.deepEqual(all, Array.from({ length: 300 }, (_, n) => `line ${n + 1}`));
  // What was there before and what came later have their times, as the command line has them:
  // both are of a moment up to 100 ms before the line, and the page shows tenths of seconds.
  await page.keyboard.press('t');
  await page.waitForSelector('.output.times');
  const shown = await page.$$eval('.scroll .line', (all) => all.map((l) => [l.querySelector('.text')!.textContent!, getComputedStyle(l, '::before').content.slice(1, -1)]));
  const known = new Map((await tend('logs', '-t', id)).split('\n').map((l) => [l.slice(28), Date.parse(l.slice(0, 27))]));
  const wrong = shown.filter(([text, when]) => text !== 'over' && !(Math.abs(Date.parse(when!.replace(' ', 'T')) - known.get(text!)!) < 300));
  assert.deepEqual([shown.length, wrong], [301, []]);
  await accessible(page);
  await page.selectOption('select[aria-label="Stream"]', 'stderr');
  await page.waitForFunction(() => document.querySelectorAll('.scroll .line').length === 1);
  await leave(page);
});

test('output: of a flood no more is drawn than is seen, and scrolling up shows all of it once', async () => {
  const go = path.join(dir, 'flood');
  const id = await start('flood', `echo first; while [ ! -e ${go} ]; do sleep 0.05; done; seq -f "line %g" 5000; printf 'no end' >&2; exec sleep 1000`);
  const page = await loggedIn();
  await page.goto(`${url}/ui/p/${id}`);
  await page.waitForSelector('.line:has-text("first")');
  fs.writeFileSync(go, '');
  await page.waitForSelector('.line.stderr:has-text("no end")');
  await page.waitForSelector('.line:has-text("line 5000")');
  const drawn = (await lines(page)).length;
  assert.ok(drawn <= 1002, `${drawn} lines are drawn`);
  await page.focus('.scroll');
  while ((await lines(page))[0] !== 'first') {
    await page.keyboard.press('Home');
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  assert.deepEqual((await lines(page)).filter((l) => l !== 'no end'), ['first', ...Array.from({ length: 5000 }, (_, n) => `line ${n + 1}`)]);
  await leave(page);
});

test('output: a gigabyte at its end, its beginning, its middle, by search, by a link; a long line', async () => {
  // Lines of twelve bytes: seq is fast at these.
  const size = 12 * Math.floor(2 ** 30 / 12);
  const last = (n: number) => String(1e10 + n);
  const id = await start('big', `seq ${last(0)} ${last(size / 12 - 1)}`, '--keep', '2GiB');
  await tend('wait', id);
  const page = await loggedIn();
  await page.goto(`${url}/ui/p/${id}?s=stdout`);
  await page.waitForSelector(`.line:has-text("${last(size / 12 - 1)}")`);
  assert.ok((await lines(page)).length <= 12000);
  await page.keyboard.press('g');
  await page.keyboard.press('g');
  await page.waitForSelector(`.line:has-text("${last(0)}")`);
  const box = (await page.locator('.map').boundingBox())!;
  await killServerDuring(async () => {
    await page.mouse.click(box.x + 5, box.y + box.height / 2);
    await page.waitForSelector('.pane .busy');
  });
  await page.waitForFunction((half) => Math.abs(Number((document.querySelector('.map') as HTMLElement).ariaValueNow) - half) < half / 20, size / 2);
  // Scrolling by hand goes on without a gap.
  for (let n = 0; n < 15; n++) {
    await page.$eval('.scroll', (e) => e.scrollBy(0, 3000));
    await page.waitForTimeout(40);
  }
  const seen = (await lines(page)).map((l) => Number(l));
  assert.ok(seen.length > 1000 && seen.length <= 12000, `${seen.length} lines are there`);
  assert.ok(seen.every((v, n) => n === 0 || v === seen[n - 1]! + 1), 'the lines follow each other');
  await page.goto(`${url}/ui/p/${id}?s=stdout&at=${12 * 1234567 + 9}`);
  await page.waitForSelector(`.line.marked:has-text("${last(1234567)}")`);
  // The first hit has come, and the last one is a gigabyte away, when the server dies.
  await page.fill('#search', `^(${last(0)}|${last(size / 12 - 1)})$`);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /[12] hits?/.test(document.querySelector('.hits')?.textContent ?? ''));
  await killServer();
  await page.waitForSelector('.hits:has-text("2 hits")');
  await leave(page);

  const long = await start('long', "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo after");
  await tend('wait', long);
  const other = await loggedIn();
  await other.goto(`${url}/ui/p/${long}`);
  await other.waitForSelector('.line:has-text("after")');
  await leave(other);
});

test('output: the search of the server, hit by hit, and a wrong pattern in words', async () => {
  const id = await start('searched', 'seq -f "item %g" 5000; echo "item x" >&2');
  await tend('wait', id);
  const page = await loggedIn();
  await page.goto(`${url}/ui/p/${id}?q=item%20(17|x|4999)$`);
  await page.waitForSelector('.hits:has-text("3 hits")');
  await page.fill('#search', 'item (17|4999)$');
  await killServerDuring(async () => {
    await page.press('#search', 'Enter');
    await page.waitForSelector('.hits:has-text("searching")');
  });
  await page.waitForSelector('.hits:has-text("2 hits")');
  await page.keyboard.press('Escape');
  await page.keyboard.press('n');
  await page.waitForSelector('.line.marked:has-text("item 17")');
  await page.keyboard.press('n');
  await page.waitForSelector('.line.marked:has-text("item 4999")');
  await page.fill('#search', '(');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.output .error:has-text("pattern")');
  const [saved] = await Promise.all([page.waitForEvent('download'), page.click('text=Download')]);
  const text = fs.readFileSync((await saved.path())!, 'utf8');
  assert.equal(text.split('\n').filter((l) => /^item \d+$/.test(l)).length, 5000);
  await leave(page);
});

test('process: signals, kill, and a masked environment', async () => {
  const id = await start('target', 'trap "echo got it" USR1; echo ready; while :; do sleep 0.05; done', '--env', 'API_KEY=hunter2', '--pids', '64');
  const page = await loggedIn();
  await page.goto(`${url}/ui/p/${id}`);
  await page.waitForSelector('.line:has-text("ready")');
  await page.waitForSelector('.facts div:has-text("Tasks at most"):has-text("64")');
  await page.selectOption('select[aria-label="Send a signal"]', '10');
  await page.waitForSelector('.line:has-text("got it")');
  await page.click('text=Environment');
  await page.waitForSelector('dt:has-text("API_KEY")');
  assert.doesNotMatch((await page.textContent('.environment'))!, /hunter2/);
  await page.click('button[aria-label="Show API_KEY"]');
  await page.waitForSelector('.environment:has-text("hunter2")');
  await accessible(page);
  await killServer();
  let calls = 0;
  await page.route('**/*.ProcessService/Kill', async (route) => {
    if (calls++ === 0) return route.abort('connectionreset');
    const answer = await route.fetch();
    await page.waitForSelector('.actions > .danger', { state: 'detached' }); // the news of the end comes before the answer
    await route.fulfill({ response: answer });
  });
  await page.click('.actions .danger');
  await page.click('dialog .danger');
  await page.waitForSelector('dialog h2:has-text("Killed")');
  await accessible(page);
  await page.keyboard.press('Escape');
  await page.waitForSelector('.title .state:has-text("killed")');
  await leave(page);
});

test('terminal: what is typed arrives once, and what is written is shown once, over killed servers', async () => {
  const typed = path.join(dir, 'typed');
  const id = await start('term', `stty -echo; echo "ready $(stty size)"; cat >${typed}; seq 1 3000; echo the end; exec sleep 1000`, '-t');
  const page = await loggedIn({ width: 900, height: 700 });
  await page.goto(`${url}/ui/p/${id}`);
  const screen = () => page.$$eval('.xterm-rows > div', (rows) => rows.map((r) => (r.textContent ?? '').trimEnd()));
  await until(async () => (await screen()).some((l) => l.startsWith('ready')), 'the terminal shows the program');
  let want = '';
  for (let n = 0; n < 120; n++) {
    if (n === 40 || n === 80) void killServer();
    want += `line ${n}\n`;
    await page.keyboard.type(`line ${n}`);
    await page.keyboard.press('Enter');
  }
  await page.keyboard.press('Control+d');
  await page.waitForFunction(() => document.querySelector('.xterm-rows')?.textContent?.includes('the end'));
  await until(() => fs.readFileSync(typed, 'utf8').length >= want.length, 'all that was typed has come');
  assert.equal(fs.readFileSync(typed, 'utf8'), want);
  const numbers = (await screen()).filter((l) => /^\d+$/.test(l)).map(Number);
  assert.ok(numbers.length > 10 && numbers.every((v, n) => v === 3000 - numbers.length + n + 1), `the screen has ${numbers}`);
  // What is far above is found, and the place after it; what is not there is said.
  await page.fill('[aria-label="Search in the terminal"]', '2345');
  await until(async () => (await screen()).includes('2345'), 'it is shown');
  await page.fill('[aria-label="Search in the terminal"]', '2346');
  await page.keyboard.press('Enter');
  await until(async () => (await screen()).includes('2346'), 'the next one is shown');
  await page.fill('[aria-label="Search in the terminal"]', 'nowhere');
  await says(page, '.tty .statusline', /not found/);
  await accessible(page);
  await leave(page);
});

test('terminal: a finished one is replayed, and exported, over killed servers', async () => {
  const go = path.join(dir, 'second');
  // A letter of two bytes arrives in two halves.
  const id = await start('film', `printf 'the first \\303'; while [ ! -e ${go} ]; do sleep 0.05; done; printf '\\251 and the second'; exit 0`, '-t');
  await until(async () => (await tend('logs', id)).includes('the first'), 'it has written');
  for (const size of [{ cols: 132, rows: 40 }, { cols: 20, rows: 10 }]) {
    const answer = await fetch(`${url}/tend.v1.ProcessService/Resize`, { method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` }, body: JSON.stringify({ process: { id }, size }) });
    assert.equal(answer.status, 200);
  }
  const page = await loggedIn();
  fs.writeFileSync(go, '');
  await tend('wait', id);
  await page.goto(`${url}/ui/p/${id}`);
  const playable = () => page.waitForSelector('.player button:has-text("Play"):enabled');
  await page.click('text=Replay');
  await playable();
  await page.click('text=Environment');
  await page.waitForSelector('.environment, .notice');
  await killServerDuring(async () => {
    await page.click('text=Replay');
    await page.waitForSelector('[aria-label="Replay"]:has-text("loading")');
  });
  await playable();
  const seen = (text: string, not: string) => page.waitForFunction(([text, not]) => ((all) => all.includes(text!) && !all.includes(not!))(document.querySelector('.xterm-rows')?.textContent ?? ''), [text, not]);
  const sized = (cols: number, rows: number) => Promise.all([
    page.waitForFunction((rows) => document.querySelectorAll('.xterm-rows > div').length === rows, rows),
    says(page, '.statusline', new RegExp(`^${cols}\u00d7${rows}`)),
  ]);
  await sized(80, 24);
  await page.focus('.player [type=range]');
  await page.keyboard.press('End');
  await seen('the first \u00e9 and the second', '\ufffd'); // in more than one line
  await sized(20, 10);
  await page.keyboard.press('Home');
  await seen('', 'second');
  await sized(80, 24);
  await page.selectOption('select[aria-label="Speed"]', '16');
  await page.click('.player button:has-text("Play")');
  await seen('and the second', '\ufffd');
  await page.waitForSelector('.player button:has-text("Play")');
  const [now, end] = await page.$eval('.player [type=range]', (e) => [(e as HTMLInputElement).value, (e as HTMLInputElement).max]);
  assert.ok(Math.abs(Number(now) - Number(end)) < 1, `it stands at ${now} of ${end} ms`);
  await accessible(page);
  await shots(page, 'replay');
  const [saved] = await Promise.all([page.waitForEvent('download'), killServerDuring(() => page.click('text=Export as asciinema'))]);
  assert.equal(saved.suggestedFilename(), 'film.cast');
  const [header, ...events] = fs.readFileSync((await saved.path())!, 'utf8').trimEnd().split('\n').map((l) => JSON.parse(l));
  assert.deepEqual([header.version, header.title, typeof header.timestamp, header.width, header.height], [2, 'film', 'number', 80, 24]);
  assert.deepEqual(events.map(([, code, text]) => `${code} ${text}`), ['o the first ', 'r 132x40', 'r 20x10', 'o \u00e9 and the second']);
  assert.ok(events.every(([at], n) => at >= (events[n - 1]?.[0] ?? 0)), `the times are ${events.map(([at]) => at)}`);
  assert.ok(events.at(-1)![0] > events[0]![0], 'what came later has a later time');
  await leave(page);
});

test('a service that is a process which ran already: by what it was found, and that it has no output here', async () => {
  const theirs = spawn('sleep', ['1000'], { stdio: 'ignore' });
  fs.writeFileSync(path.join(dir, 'theirs.pid'), `${theirs.pid}`);
  fs.writeFileSync(path.join(dir, 'adopt.yaml'), 'services:\n  theirs: {command: exec sleep 1000, adopt: {pid_file: theirs.pid}}\n');
  await tend('up', '-d', '-f', 'adopt.yaml');
  const page = await loggedIn({ width: 360, height: 740 });
  await page.goto(`${url}/ui/s/theirs`);
  await page.waitForSelector('.facts div:has(dt:text-is("Adopted")):has-text("theirs.pid")');
  await says(page, '.notice', /did not start it/);
  await says(page, '.facts', new RegExp(`PID${theirs.pid}`));
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'a long path is not wider than the screen');
  await accessible(page);
  await shots(page, 'adopted');
  await page.click('text=Restart');
  await says(page, '.facts', /Process/);
  await page.waitForFunction(() => !document.querySelector('.facts')!.textContent!.includes('Adopted'));
  await tend('down');
  await leave(page);
});

test('on a phone nothing is wider than the screen', async () => {
  const page = await loggedIn({ width: 360, height: 740 });
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
  await page.waitForSelector('.row.item');
  assert.ok(await fits(), 'the overview');
  await page.click('.row.item:has-text("counter") a');
  await page.waitForSelector('.output .line');
  assert.ok(await fits(), 'a process');
  // What follows the end goes on with it when the window, and so the lines, become others.
  const id = await start('wide', `seq -f "line %g $(printf 'of many words %.0s' $(seq 30))" 300; exec sleep 1000`);
  await page.setViewportSize({ width: 1280, height: 740 });
  await page.goto(`${url}/ui/p/${id}?q=many`);
  await page.waitForSelector('.line:has-text("line 300")');
  const atEnd = () => page.waitForFunction(() => ((e) => e.scrollHeight - e.clientHeight - e.scrollTop < 4)(document.querySelector('.scroll')!));
  await atEnd();
  for (const width of [360, 820]) {
    await page.setViewportSize({ width, height: 740 });
    await page.waitForFunction((width) => document.documentElement.clientWidth === width, width);
    await atEnd();
  }
  await page.setViewportSize({ width: 360, height: 740 });
  await page.keyboard.press('t');
  await page.waitForSelector('.output.times');
  await atEnd();
  await page.waitForSelector('.hits:has-text("300 hits")');
  const seen = (selector: string) => page.$$eval(selector, (all) => all.every((e) => e.getBoundingClientRect().right <= innerWidth && e.getBoundingClientRect().left >= 0));
  assert.ok(await seen('.search button'), 'the buttons of the search');
  await page.goto(`${ui}?kind=process`);
  await page.waitForSelector('.tabs [aria-pressed="true"]:has-text("Processes")');
  assert.ok(await seen('.tabs [aria-pressed="true"]'), 'the tab that is chosen');
  assert.ok(await page.$eval('.connection', (e) => e.scrollWidth <= e.clientWidth), 'that the connection is live');
  await page.route('**/tend.v1.OverviewService/*', (r) => r.abort());
  await killServer();
  await page.reload();
  await page.waitForSelector('.overview[aria-busy]');
  assert.ok((await fits()) && (await seen('.bar button:visible')), 'the bar before there is a connection');
  await page.waitForSelector('.connection.away');
  assert.ok((await fits()) && (await seen('.bar button:visible')), 'the bar while the connection is lost');
  await page.unroute('**/tend.v1.OverviewService/*');
  await page.waitForSelector('.connection:has-text("live")');
  await leave(page);
});

test('no page has run what is foreign, or asked another server', () => assert.deepEqual(complaints, []));
