// What the tests of the page stand on: a real tend, a real browser, and what is done with
// both again and again. Each file of tests has its own.
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after } from 'node:test';
import { promisify } from 'node:util';
import assert from 'node:assert/strict';
import axe from 'axe-core';
import { build } from 'esbuild';
import { chromium, type Page } from 'playwright-core';
import { Daemon, until } from '../../daemon.js';

export const bin = process.env['TEND_BIN'] ?? path.resolve('../../bin/tend');
export const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'tend-page-'));
export const token = 'the-token-of-this-test';
const tokenFile = path.join(dir, 'token');
fs.writeFileSync(tokenFile, token, { mode: 0o600 });

export const daemon = await Daemon.start('--token-file', tokenFile);
export const executable = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
export const browser = await chromium.launch({ executablePath: executable, args: ['--no-sandbox', '--disable-gpu'] });
after(async () => {
  await browser.close();
  fs.rmSync(dir, { recursive: true, force: true });
});

export const url = daemon.url;
export const ui = `${url}/ui/`;

export async function tend(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(bin, args, { env: { ...process.env, TEND_URL: daemon.socket }, cwd: dir });
  return stdout.trim();
}

/** Starts a process and returns its ID. */
export const start = (name: string, shell: string, ...flags: string[]) => tend('run', '-d', '--name', name, ...flags, '-c', shell);

/** Kills the server; the launcher's roles start another. */
export async function killServer(): Promise<void> {
  const pid = (await until(() => daemon.roles()['server'], 'there is a server'))!;
  process.kill(pid, 'SIGKILL');
  await until(() => (daemon.roles()['server'] ?? pid) !== pid, 'there is another server');
}

/** Kills the server in the middle of what act asks of it: it stands still from before on. */
export async function killServerDuring(act: () => Promise<unknown>): Promise<void> {
  const pid = (await until(() => daemon.roles()['server'], 'there is a server'))!;
  process.kill(pid, 'SIGSTOP');
  try {
    await act();
  } finally {
    process.kill(pid, 'SIGKILL'); // what fails leaves a server to the tests behind it
  }
  await until(() => (daemon.roles()['server'] ?? pid) !== pid, 'there is another server');
}

/** What a page has said that it should not. */
export const complaints: string[] = [];

export async function open(size = { width: 1280, height: 800 }): Promise<Page> {
  const context = await browser.newContext({ viewport: size });
  context.setDefaultTimeout(180_000); // the bound of what fails; any machine stands still at times
  const page = await context.newPage();
  page.on('pageerror', (err) => complaints.push(`error: ${err.message}`));
  page.on('dialog', (d) => (complaints.push(`dialog: ${d.message()}`), void d.dismiss()));
  page.on('request', (r) => !r.url().startsWith(url) && !/^(data|blob):/.test(r.url()) && complaints.push(`foreign request: ${r.url()}`));
  await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.sourceFile}`)));
  page.on('console', (m) => m.text().startsWith('policy:') && complaints.push(m.text()));
  return page;
}

export async function loggedIn(size?: { width: number; height: number }): Promise<Page> {
  const page = await open(size);
  await page.goto(ui);
  await page.fill('#token', token);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.overview');
  return page;
}

/** Gives what is evaluated in a page `proof`, by which its own scripts call: fetch, as whoever is logged in there. */
export async function proving(page: Page): Promise<void> {
  const form = { platform: 'browser', format: 'iife', globalName: 'proof' } as const;
  const bundle = await build({ entryPoints: ['src/proof.ts'], bundle: true, write: false, logLevel: 'warning', ...form });
  await page.evaluate(`${bundle.outputFiles[0]!.text}; globalThis.proof = proof`);
}

/** The text of the lines that are there. */
export const lines = (page: Page) => page.$$eval('.scroll .text', (all) => all.map((e) => e.textContent ?? ''));

/** Waits until an element says something: what one shows may come from several answers. */
export async function says(page: Page, selector: string, what: RegExp): Promise<void> {
  try {
    await page.locator(selector, { hasText: what }).first().waitFor();
  } catch (err) {
    const shown = (await page.locator('body').innerText()).slice(0, 4000);
    throw new Error(`${String(err)}\n${page.url()} shows:\n${shown}`, { cause: err });
  }
}

export const leave = (page: Page) => page.context().close();

/**
 * Wants what a program can tell of WCAG 2.1 AA of what a page shows: all of it in light, and the
 * contrast in dark, too. It does not see text that style sheets generate: offsets and times of
 * lines have the colour of other faint text. What a terminal draws is xterm.js's affair, which is told to keep the contrast.
 */
export async function accessible(page: Page): Promise<void> {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe.source);
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    const found = await page.evaluate(
      async (only) => {
        const { violations } = await (window as unknown as { axe: typeof axe }).axe.run({ exclude: ['.xterm'] }, { runOnly: only, resultTypes: ['violations'] });
        return violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 300)}: ${n.failureSummary}`));
      },
      colorScheme === 'light' ? ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] : ['color-contrast'],
    );
    assert.deepEqual(found, [], `${page.url()} in ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: null, reducedMotion: null });
}

/** Pictures of a page in three sizes, light and dark, where PAGE_SHOTS names a directory. */
export async function shots(page: Page, name: string): Promise<void> {
  const to = process.env['PAGE_SHOTS'];
  if (!to) return;
  const was = page.viewportSize()!;
  for (const [size, width, height] of [['wide', 1440, 900], ['tablet', 820, 1180], ['phone', 360, 740]] as const) {
    await page.setViewportSize({ width, height });
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await page.waitForTimeout(150);
      await page.screenshot({ path: path.join(to, `${name}-${size}-${colorScheme}.png`), fullPage: true });
    }
  }
  await page.setViewportSize(was);
}
