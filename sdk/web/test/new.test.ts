// What is made from the page: sandboxes, processes and services; templates, images and the logs of builds; what a login that only reads sees of it.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { accessible, complaints, dir, killServer, leave, loggedIn, open, says, shots, tend, ui } from './stage.js';

test('new: a template is built and its log read, a sandbox of it with limits and time, a process in it, a service', async () => {
  fs.mkdirSync(path.join(dir, 'ctx'));
  fs.writeFileSync(path.join(dir, 'ctx', 'tend.template'), 'RUN echo built as $(id -un); echo hello >/made\n');
  await tend('template', 'build', '-q', '-t', 'made', 'ctx');
  const page = await loggedIn();
  await page.click('a:text-is("Templates and images")');
  await page.click('.things li:has-text("made") button:has-text("Log of its build")');
  await says(page, '.build', /it is ready.*built as root/s);
  assert.match(page.url(), /\/ui\/templates\?build=/);
  await accessible(page);
  await shots(page, 'templates');
  await page.click('.things li:has-text("made") a:text-is("New sandbox")');
  await page.waitForSelector('select:has(option:checked:text-is("template made"))');
  await page.fill('input[name=name]', 'from page');
  await page.fill('input[name=cpus]', '0.5');
  await page.fill('input[name=memory]', '256');
  await page.fill('input[name=minutes]', '90');
  await page.click('button:text-is("Make the sandbox")');
  await says(page, '.form .error', /name/); // of the server, about the space
  await page.fill('input[name=name]', 'frompage');
  await accessible(page);
  await shots(page, 'new');
  await page.click('button:text-is("Make the sandbox")');
  await says(page, '.head', /frompage.*ready.*removed in 1 h/s);
  const made = JSON.parse(await tend('sandbox', 'inspect', 'frompage'))[0];
  assert.deepEqual([made.template, made.size.cpus, made.size.memory], ['made', 0.5, 256 * 2 ** 20]);
  // A process in it, over a killed server.
  await page.click('a:text-is("New process")');
  await page.fill('input[name=command]', 'cat /made; exec sleep 1000');
  await page.fill('input[name=name]', 'reader');
  await killServer();
  await page.click('button:text-is("Start the process")');
  await page.waitForURL(/\/ui\/p\/[0-9a-f]+\?box=/);
  await says(page, '.scroll', /hello/);
  // Another of the name is refused, in words.
  await page.goto(`${ui}new/process?box=${made.id}`);
  await page.fill('input[name=command]', 'true');
  await page.fill('input[name=name]', 'reader');
  await page.click('button:text-is("Start the process")');
  await says(page, '.form .error', /reader/);
  await page.goto(`${ui}new/service`);
  await page.fill('input[name=name]', 'kept');
  await page.fill('input[name=command]', 'echo "in $PWD"; exec sleep 1000');
  await page.fill('input[name=dir]', dir);
  await page.click('button:text-is("Start the service")');
  await says(page, '.scroll', new RegExp(`in ${dir}`));
  assert.match(page.url(), /\/ui\/s\/kept(%2Fkept)?$/);
  await page.goto(`${ui}new/service`);
  await page.fill('input[name=name]', 'kept');
  await page.fill('input[name=command]', 'true');
  await page.fill('input[name=dir]', '/');
  await page.click('button:text-is("Start the service")');
  await says(page, '.form .error', /There is a project kept already/);
  await leave(page);
  // A login that only reads sees templates and figures, and nothing that makes.
  const reader = await open({ width: 360, height: 740 });
  await reader.goto((await tend('ui', '--read-only', '--print')).split('\n').pop()!);
  await reader.waitForSelector('.makes a:text-is("Templates and images")');
  assert.equal(await reader.locator('a[href*="/ui/new"]').count(), 0);
  await reader.click('.makes a:text-is("Templates and images")');
  await reader.waitForSelector('.things li:has-text("made")');
  assert.equal(await reader.locator('a[href*="/ui/new"]').count(), 0);
  assert.ok(await reader.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing sticks out');
  await reader.goto(`${ui}new/sandbox`);
  await says(reader, 'main', /This login only reads/);
  await leave(reader);
  assert.deepEqual(complaints, []);
});
