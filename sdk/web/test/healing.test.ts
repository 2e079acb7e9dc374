// Services that break and are healed, as a person sees it, with the server killed meanwhile.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { freePort, key, model } from './model.js';
import { accessible, complaints, dir, killServer, killServerDuring, leave, loggedIn, says, shots, tend, url } from './stage.js';

const repo = path.join(dir, 'project');
const git = (...args: string[]) => execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', ...args], { cwd: repo, encoding: 'utf8', env: { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null' } });

/** A project whose server needs a good part. A playbook mends it as mend.sh says. */
async function project(): Promise<void> {
  fs.mkdirSync(path.join(repo, '.tend/playbooks'), { recursive: true });
  fs.writeFileSync(path.join(repo, 'server.mjs'), "import fs from 'node:fs'; import http from 'node:http';\nif (!fs.readFileSync('part.txt', 'utf8').startsWith('good')) { console.error('the part is bad'); process.exit(1); }\nhttp.createServer((q, r) => r.end('well')).listen(Number(process.env.PORT), '127.0.0.1');\n");
  fs.writeFileSync(path.join(repo, 'part.txt'), 'good\n');
  fs.writeFileSync(path.join(repo, 'mend.sh'), `until [ -e ${dir}/go ]; do sleep 0.3; done; echo good again > part.txt\n`);
  fs.writeFileSync(path.join(repo, '.tend/playbooks/part.yaml'), 'why: the part is bad\nwhen: {log: the part is bad}\ncommit: true\ndo:\n  - run: [sh, mend.sh]\n');
  git('init', '-q', '-b', 'main');
  git('add', '-A');
  git('commit', '-q', '-m', 'base');
}

const port = await freePort();

async function up(healer: string): Promise<void> {
  const file = path.join(repo, 'tend.yaml');
  fs.writeFileSync(
    file,
    `services:\n  web: {command: ['${process.execPath}', server.mjs], env: {PORT: '${port}'}, health: {http: 'http://127.0.0.1:${port}/', interval: 500ms, timeout: 60s}, restart: {delay: 100ms, max_delay: 2s, max: 100}}\nhealer: {hold: 500ms, per_day: 100${healer}}\n`,
  );
  process.env['ANTHROPIC_API_KEY'] = key;
  await tend('up', '-d', '-f', file);
}

function spoil(): void {
  fs.writeFileSync(path.join(repo, 'part.txt'), 'bad\n');
  git('commit', '-q', '-m', 'spoil', 'part.txt');
}

await project();

test('healing: a service that breaks is repaired by a playbook while one looks on, over a killed server', async () => {
  await up('');
  const page = await loggedIn();
  await page.click('.row.item:has-text("web") a');
  await page.waitForSelector('.title .state:has-text("healthy")');
  await page.click('.tabs button:text-is("Healing")');
  await page.waitForSelector('text=Nothing was repaired yet');
  spoil();
  await page.click('.title button:text-is("Restart")');
  await page.waitForSelector('.step.now:has-text("Trying it")');
  await says(page, '.timeline', /Playbook part/);
  await killServer();
  fs.writeFileSync(path.join(dir, 'go'), '');
  await page.waitForSelector('.step.ok:has-text("It is well again")');
  await page.waitForSelector('.diff .added:has-text("+good again")');
  await says(page, '.timeline', /Checkpoint of the project[^]*sh mend\.sh[^]*Probes[^]*well for [^]*Committed as/);
  assert.equal(await page.locator('.timeline > .step:has(.substeps)').count(), 1, 'no step is there twice');
  await shots(page, 'playbook');
  // What one looks at is in the address.
  await page.reload();
  await page.waitForSelector('.step.ok:has-text("It is well again")');
  assert.equal(git('log', '-1', '--format=%an'), 'tend healer\n');
  // The file is compared with what it was before the repair, and one that none has changed with
  // nothing; over a killed server.
  await page.goto(`${url}/ui/files?path=${encodeURIComponent(path.join(repo, 'part.txt'))}`);
  await page.waitForSelector('.editor .cm-content:has-text("good again")');
  await killServerDuring(() => page.click('button:text-is("Changes")'));
  await page.waitForSelector('.hint:has-text("Compared with the state before the repair of web")');
  await says(page, '.editor .cm-deletedChunk', /bad/);
  await accessible(page);
  await shots(page, 'files-changes');
  await page.click('button:text-is("Changes")');
  await page.waitForSelector('.editor .cm-deletedChunk', { state: 'detached' });
  assert.equal(await page.locator('.filebody .hint').count(), 0);
  await page.click('button:text-is("Changes")');
  await page.waitForSelector('.editor .cm-deletedChunk');
  await page.click('.hint a:text-is("the repair")');
  await page.waitForSelector('.step.ok:has-text("It is well again")');
  await page.goto(`${url}/ui/files?path=${encodeURIComponent(path.join(repo, 'tend.yaml'))}`);
  await page.click('button:text-is("Changes")');
  await page.waitForSelector('.hint:has-text("There is nothing to compare with")');
  await leave(page);
});

test('healing: a repair is taken back once one has seen what goes; what has changed since is named; over a killed server', async () => {
  const repair = git('rev-parse', 'HEAD').trim();
  const page = await loggedIn();
  await page.goto(`${url}/ui/s/web?tab=healing`);
  const sure = page.locator('dialog');
  // Somebody has changed the file since.
  fs.writeFileSync(path.join(repo, 'part.txt'), 'good, and better\n');
  await page.click('.healing button:has-text("Take it back")');
  await sure.locator('.added:has-text("+good again")').waitFor();
  await says(page, 'dialog .sure', /The files that the repair committed become what they were before it, by a new commit\.[^]*Not undone is what the repair did besides: files that it changed and did not commit/);
  await accessible(page);
  await shots(page, 'takeback');
  await sure.locator('button:text-is("Keep it")').click();
  await sure.waitFor({ state: 'detached' });
  assert.equal(git('rev-parse', 'HEAD').trim(), repair);
  await page.click('.healing button:has-text("Take it back")');
  await sure.locator('button:text-is("Take it back")').click();
  await sure.locator('.error:has-text("part.txt: it has changed since")').waitFor();
  await shots(page, 'takeback-refused');
  await sure.locator('button:text-is("Keep it")').click();
  assert.equal(fs.readFileSync(path.join(repo, 'part.txt'), 'utf8'), 'good, and better\n');
  git('checkout', '-q', 'part.txt');
  await page.click('.healing button:has-text("Take it back")');
  await killServerDuring(() => sure.locator('button:text-is("Take it back")').click());
  await page.waitForSelector('.notice:has-text("The repair was taken back")');
  await says(page, '.timeline', /Somebody wants a repair taken back[^]*Looked whether it has changed since[^]*It was taken back/);
  await says(page, '.diff', /-good again[^]*\+bad/);
  assert.equal(git('log', '-1', '--format=%s %P').trim(), `Take back the repair of web ${repair}`);
  assert.equal(fs.readFileSync(path.join(repo, 'part.txt'), 'utf8'), 'bad\n');
  await accessible(page);
  await shots(page, 'takenback');
  // The repair itself says so, and has no button any more. It is not made again by itself.
  await page.click('.notice a:has-text("See the repair")');
  await page.waitForSelector('.notice:has-text("This repair was taken back")');
  assert.equal(await page.locator('.healing button:has-text("Take it back")').count(), 0);
  await page.waitForSelector('.healbar .state:has-text("broken")');
  fs.writeFileSync(path.join(repo, 'part.txt'), 'good\n');
  git('commit', '-q', '-m', 'mended by hand', 'part.txt');
  await leave(page);
});

test('healing: the words, commands and changes of a model, live and over a killed server; tokens and cost', async () => {
  fs.writeFileSync(path.join(repo, '.tend/playbooks/part.yaml'), 'disabled: true\n');
  git('commit', '-q', '-m', 'no playbook', '-a');
  const tool = (name: string, input: unknown) => ({ tool: name, input });
  const usage = { input_tokens: 120_000, output_tokens: 5_000 };
  const address = await model([
    { name: 'look', expect: ['attempt 1 of 1'], usage, faults: [{ kind: 'slow', after: 8, until: path.join(dir, 'heard') }], reply: [{ text: `I will look at part.txt, since the log says so. ${'Thinking aloud. '.repeat(12)}` }, tool('read', { path: 'part.txt' })] },
    { name: 'edit', expect: ['bad'], usage, reply: [{ text: 'It has to be <b>good</b>.' }, tool('edit', { path: 'part.txt', old: 'bad', new: 'good <script>alert(1)</script>' }), tool('restart', {})] },
    { name: 'finish', usage, reply: [tool('finish', { summary: 'The part was bad; it is good again.' })] },
  ]);
  await up(`, attempts: 1, llm: {model: scripted, base_url: '${address}', prices: {input: 3, output: 15}}`);
  const page = await loggedIn();
  await page.goto(`${url}/ui/s/web?tab=healing`);
  await page.waitForSelector('.title .state:has-text("healthy")');
  spoil();
  await page.click('.title button:text-is("Restart")');
  await page.waitForSelector('.words.live:has-text("I will look at part.txt")');
  await shots(page, 'live');
  await killServer();
  fs.writeFileSync(path.join(dir, 'heard'), '');
  await page.waitForSelector('.step.ok:has-text("It is well again")');
  const talk = (await page.textContent('.talk'))!;
  assert.match(talk, /I will look at part\.txt[^]*read part\.txt[^]*It has to be <b>good<\/b>\.[^]*edit part\.txt[^]*restart the service[^]*The part was bad/);
  assert.equal(talk.match(/It has to be/g)!.length, 1, 'nothing is said twice');
  await page.waitForSelector('.words.live', { state: 'detached' });
  await accessible(page);
  await shots(page, 'model');
  await says(page, '.diff >> nth=-1', /-bad[^]*\+good <script>/);
  await says(page, '.healing .facts', /360,000 read, 15,000 written/);
  await says(page, '.healing .facts', /Cost1\.3[01]/); // 3 × (0.12 × 3 + 0.005 × 15) = 1.305
  await leave(page);
});

test('healing: what does not help is broken, and says what to do; stop, and heal now', async () => {
  // It is no file of the project: a change of one would have it repaired anew.
  const mend = path.join(dir, 'mend.sh');
  fs.writeFileSync(mend, 'echo worse > part.txt; exec sleep 1000\n');
  fs.writeFileSync(path.join(repo, '.tend/playbooks/part.yaml'), 'why: the part is bad\nwhen: {log: the part is bad}\ncommit: true\ndo:\n  - run: [sh, ' + mend + ']\n');
  git('commit', '-q', '-m', 'another playbook', '-a');
  await up('');
  const page = await loggedIn({ width: 390, height: 844 });
  await page.goto(`${url}/ui/s/web?tab=healing`);
  await page.waitForSelector('.title .state:has-text("healthy")');
  spoil();
  await page.click('.title button:text-is("Restart")');
  await page.waitForSelector('.step.now:has-text("Trying it")');
  await page.click('.healbar button:has-text("Stop")');
  await page.waitForSelector('.step.undone:has-text("Taken back")');
  await page.waitForSelector('.broken-help:has-text("the healer has given up")');
  assert.equal(fs.readFileSync(path.join(repo, 'part.txt'), 'utf8'), 'bad\n');
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'on a phone nothing is wider than the screen');
  await killServer();
  await page.waitForSelector('.connection:has-text("live")');
  await shots(page, 'broken');
  // What the remedy needs is there by now, and somebody asks for it.
  fs.writeFileSync(mend, 'echo good > part.txt\n');
  await page.click('.healbar button:text-is("Heal now")');
  await page.waitForSelector('.step:has-text("Somebody asked for it")');
  await page.waitForSelector('.step.ok:has-text("It is well again")');
  await page.waitForSelector('.healbar .state:has-text("repaired")');
  await page.click('.healbar button:has-text("What would be tried")');
  await page.waitForSelector('.step:has-text("Nothing was done")');
  await leave(page);
});

test('no page of healing has run what is foreign, or asked another server', () => assert.deepEqual(complaints, []));

