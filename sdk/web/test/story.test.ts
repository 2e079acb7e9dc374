// What a person does who has never seen the page: starts a service, breaks it, watches it being
// healed, opens a terminal, and sends a colleague a link. The server is killed on the way.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { complaints, dir, killServer, leave, open, says, shots, tend } from './stage.js';

const app = path.join(dir, 'app');
const git = (...args: string[]) => execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', ...args], { cwd: app, encoding: 'utf8', env: { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null' } });

test('a person starts a service, breaks it, sees it healed, opens a terminal, and sends a link', async () => {
  fs.mkdirSync(path.join(app, '.tend/playbooks'), { recursive: true });
  fs.writeFileSync(path.join(app, 'run.sh'), 'grep -q good part.txt || { echo the part is bad; exit 1; }\necho it works\nexec sleep 1000\n');
  fs.writeFileSync(path.join(app, 'part.txt'), 'good\n');
  fs.writeFileSync(path.join(app, '.tend/playbooks/part.yaml'), 'why: the part is bad\nwhen: {log: the part is bad}\ncommit: true\ndo:\n  - run: [git, checkout, HEAD, part.txt]\n');
  fs.writeFileSync(path.join(app, 'tend.yaml'), 'services:\n  web: {command: sh run.sh, health: {log: it works}, watch: {paths: [part.txt], delay: 50ms}, restart: {delay: 100ms, max_delay: 1s, max: 100}}\nhealer: {hold: 500ms, per_day: 100}\n');
  git('init', '-q', '-b', 'main');
  git('add', '-A');
  git('commit', '-q', '-m', 'base');
  await tend('up', '-d', '-f', path.join(app, 'tend.yaml'));
  await tend('down', 'web');

  const page = await open();
  await page.goto(await tend('ui', '--print'));
  await page.click('.row.item a[href$="/s/web"]');
  await page.click('.title button:text-is("Start")');
  await page.waitForSelector('.title .state:has-text("healthy")');
  await says(page, '.scroll', /it works/);

  // Breaks it, in the editor.
  await page.click('.facts dt:text-is("Process") + dd a');
  await page.click('.facts dt:text-is("Directory") + dd a');
  await page.click('.treerow:has-text("part.txt")');
  await says(page, '.editor .cm-content', /good/);
  await page.click('.editor .cm-content');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('spoilt');
  await killServer();
  await page.keyboard.press('Control+s');
  await page.waitForSelector('.said:text-is("Saved")');

  // And sees that it is healed.
  await page.click('.bar .brand');
  await page.click('.row.item a[href$="/s/web"]');
  await page.click('.tabs button:text-is("Healing")');
  await page.waitForSelector('.step.ok:has-text("It is well again")');
  await page.waitForSelector('.title .state:has-text("healthy")');
  await says(page, '.timeline', /Playbook part/);
  assert.equal(fs.readFileSync(path.join(app, 'part.txt'), 'utf8'), 'good\n');

  // A terminal there. Each key arrives, over a killed server too.
  await page.click('.title button:text-is("New terminal")');
  await says(page, '.xterm-rows', /[$#] ?/); // the shell's prompt
  await page.click('.screen');
  await page.keyboard.type('echo "$PWD has a $(cat part.txt) part"');
  await killServer();
  await page.keyboard.press('Enter');
  await says(page, '.xterm-rows', /app has a good part/);
  await shots(page, 'story');

  // A colleague, who may only look, sees the same by its address.
  const colleague = await open();
  await colleague.goto(await tend('ui', '--read-only', '--print'));
  await colleague.waitForSelector('.overview');
  await colleague.goto(page.url());
  await says(colleague, '.xterm-rows', /app has a good part/);
  assert.equal(await colleague.locator('button:text-is("New terminal")').count(), 0);
  await page.keyboard.type('exit');
  await page.keyboard.press('Enter');
  for (const one of [colleague, page]) {
    await one.waitForSelector('.title .state:has-text("exit 0")');
    await says(one, '.tty', /it has ended/); // and no other view has come in its place
  }
  await Promise.all([leave(page), leave(colleague)]);
  assert.deepEqual(complaints, []);
});
