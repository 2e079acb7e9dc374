// A chat about a service, as a person has it, with the page reloaded and the server killed in
// the middle of each part.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { freePort, key, model } from './model.js';
import { accessible, complaints, dir, killServer, killServerDuring, leave, loggedIn, says, shots, tend, url } from './stage.js';

const repo = path.join(dir, 'project');
const git = (...args: string[]) => execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', ...args], { cwd: repo, encoding: 'utf8', env: { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null' } });
const read = (name: string) => fs.readFileSync(path.join(repo, name), 'utf8');

test('chat: words, a command, a diff and a question, over a reload of the page and killed servers; stop and clear', async () => {
  const heard = path.join(dir, 'heard');
  const tool = (name: string, input: unknown) => ({ tool: name, input });
  const slow = { kind: 'slow', after: 8, until: heard };
  const usage = { input_tokens: 120_000, output_tokens: 5_000 };
  const address = await model([
    { name: 'command', expect: ['please mend it'], usage, faults: [slow], reply: [{ text: `I look at <b>part.txt</b>. ${'Thinking aloud. '.repeat(12)}` }, tool('exec', { command: "echo 'good <script>alert(1)</script>' > part.txt; echo ran >> ran.txt; echo more >> marked.txt; sleep 3; echo it is done" })] },
    { name: 'question', expect: ['it is done'], usage, reply: [{ text: 'Now the core.' }, tool('edit', { path: 'engine/core.js', old: 'old', new: 'new' })] },
    { name: 'end', expect: ['engine/core.js: changed'], usage, reply: [{ text: 'All is mended.' }] },
    { name: 'stopped', expect: ['once more'], faults: [{ ...slow, until: path.join(dir, 'never') }], reply: [{ text: `I go on and on. ${'And on. '.repeat(20)}` }] },
  ]);
  fs.mkdirSync(path.join(repo, 'engine'), { recursive: true });
  fs.writeFileSync(path.join(repo, 'server.mjs'), "import http from 'node:http';\nhttp.createServer((q, r) => r.end('well')).listen(Number(process.env.PORT), '127.0.0.1');\n");
  fs.writeFileSync(path.join(repo, 'part.txt'), 'bad\n');
  fs.writeFileSync(path.join(repo, 'engine/core.js'), 'old\n');
  fs.writeFileSync(path.join(repo, 'marked.txt'), '\ufeffas before\n'); // with a byte order mark
  git('init', '-q', '-b', 'main');
  git('add', '-A');
  git('commit', '-q', '-m', 'base');
  const port = await freePort();
  const file = path.join(repo, 'tend.yaml');
  fs.writeFileSync(file, `services:\n  web: {command: ['${process.execPath}', server.mjs], env: {PORT: '${port}'}, health: {http: 'http://127.0.0.1:${port}/', interval: 500ms, timeout: 60s}}\nhealer: {protected: ['engine/**'], llm: {model: scripted, base_url: '${address}', prices: {input: 3, output: 15}}}\n`);
  process.env['ANTHROPIC_API_KEY'] = key;
  await tend('up', '-d', '-f', file);

  const page = await loggedIn();
  await page.goto(`${url}/ui/s/web`);
  await page.click('.tabs button:text-is("Chat")');
  await page.waitForSelector('text=Talk with the model about this service');
  await accessible(page);
  await shots(page, 'chat-empty');
  await page.fill('.say textarea', 'please mend it');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.words.live:has-text("I look at <b>part.txt</b>.")');
  await page.reload();
  await page.waitForSelector('.words.live:has-text("I look at <b>part.txt</b>.")');
  await killServer();
  fs.writeFileSync(heard, '');
  await page.waitForSelector('.command-line:has-text("echo ran")');
  await killServer();
  await page.waitForSelector('.question:has-text("engine/core.js")');
  await page.waitForSelector('.diff .added:has-text("+good <script>")');
  assert.equal(read('engine/core.js'), 'old\n');
  assert.equal(read('ran.txt'), 'ran\n');
  await accessible(page);
  await shots(page, 'chat-question');
  await killServer();
  await page.click('.question button:text-is("Allow this once")');
  await page.waitForSelector('.words:has-text("All is mended.")');
  await page.waitForSelector('.chat .state:has-text("your turn")');
  assert.equal(read('engine/core.js'), 'new\n');
  const talk = (await page.textContent('.chat-entries'))!;
  assert.match(talk, /please mend it[^]*I look at <b>[^]*echo ran[^]*it is done[^]*Now the core\.[^]*edit engine\/core\.js[^]*-old[^]*\+new[^]*It was allowed\.[^]*All is mended\./);
  await page.waitForSelector('.words.live', { state: 'detached' });
  assert.equal(talk.match(/Now the core/g)!.length, 1, 'nothing is said twice');
  await says(page, '.chat .healbar', /360,000 tokens read, 15,000 written, cost 1\.3[01]/);
  await accessible(page);
  await shots(page, 'chat');
  // A file is compared with what it was before the turn, and what one types is compared, too.
  let files = await page.context().newPage();
  files.setDefaultTimeout(180_000);
  await files.goto(`${url}/ui/files?path=${encodeURIComponent(path.join(repo, 'part.txt'))}`);
  await files.click('button:text-is("Changes")');
  await files.waitForSelector('.hint:has-text("Compared with the state before a turn of the chat of web")');
  await says(files, '.editor .cm-deletedChunk', /bad/);
  await files.click('.editor .cm-content');
  await files.keyboard.press('Control+a');
  await files.keyboard.type('bad\n');
  await files.waitForSelector('.editor .cm-deletedChunk', { state: 'detached' });
  await files.close(); // what was typed goes with it
  files = await page.context().newPage();
  files.setDefaultTimeout(180_000);
  await files.goto(`${url}/ui/files?path=${encodeURIComponent(path.join(repo, 'marked.txt'))}`);
  await files.click('button:text-is("Changes")');
  await says(files, '.editor .cm-changedLine', /more/);
  const shown = (selector: string) => files.locator(`.editor ${selector}`).allTextContents();
  assert.deepEqual([await shown('.cm-changedLine'), (await shown('.cm-deletedChunk')).join('')], [['more'], ''], 'a byte order mark is no change');
  await files.close();
  files = await page.context().newPage();
  files.setDefaultTimeout(180_000);
  await files.goto(`${url}/ui/files?path=${encodeURIComponent(path.join(repo, 'ran.txt'))}`);
  await files.click('button:text-is("Changes")');
  await files.waitForSelector('.hint:has-text("before, it was not there")');
  await accessible(files);
  assert.ok(await files.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await files.close();
  // What the turn has changed is taken back, once one has seen what goes; what has changed since
  // is named. Over a killed server, too.
  const sure = page.locator('dialog');
  const back = page.locator('.turn-end button:has-text("Take it back")');
  const made = read('part.txt');
  fs.writeFileSync(path.join(repo, 'part.txt'), 'mine\n');
  await back.click();
  await sure.locator('.added:has-text("+new")').waitFor();
  await says(page, 'dialog .sure', /The files that the turn changed become what they were before it; nothing is committed\.[^]*Not undone is what the turn did besides: packages/);
  await accessible(page);
  await shots(page, 'chat-takeback');
  await sure.locator('button:text-is("Take it back")').click();
  await sure.locator('.error:has-text("part.txt: it has changed since")').waitFor();
  await sure.locator('button:text-is("Keep it")').click();
  await sure.waitFor({ state: 'detached' });
  assert.equal(read('part.txt') + read('engine/core.js'), 'mine\nnew\n');
  fs.writeFileSync(path.join(repo, 'part.txt'), made);
  await back.click();
  await killServerDuring(() => sure.locator('button:text-is("Take it back")').click());
  await page.waitForSelector('.notice:has-text("What a turn of the chat had changed was taken back")');
  await says(page, '.timeline', /Somebody wants a turn of the chat taken back[^]*Looked whether it has changed since[^]*It was taken back/);
  await accessible(page);
  await shots(page, 'chat-takenback');
  assert.equal(read('part.txt') + read('engine/core.js'), 'bad\nold\n');
  assert.ok(!fs.existsSync(path.join(repo, 'ran.txt')));
  assert.equal(git('log', '--format=%s'), 'base\n');
  await page.click('.notice a:text-is("See the chat")');
  await page.waitForSelector('.turn-end:has-text("What this turn had changed was taken back")');
  assert.equal(await back.count(), 0);
  // A turn can be stopped, on a phone too; and the chat forgotten.
  await page.setViewportSize({ width: 390, height: 844 });
  await page.fill('.say textarea', 'once more');
  await page.click('.say button:text-is("Send")');
  await page.waitForSelector('.words.live:has-text("I go on and on")');
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'on a phone nothing is wider than the screen');
  await page.click('.chat .healbar button:text-is("Stop")');
  await page.waitForSelector('text=You stopped it.');
  assert.match((await page.getAttribute('.chat .healbar button:text-is("Clear")', 'title'))!, /what was changed stays, and can no longer be taken back/);
  await page.click('.chat .healbar button:text-is("Clear")');
  await page.waitForSelector('text=Talk with the model about this service');
  assert.equal(git('log', '--format=%s'), 'base\n');
  await leave(page);
});

test('no page of the chat has run what is foreign, or asked another server', () => assert.deepEqual(complaints, []));
