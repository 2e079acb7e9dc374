// The notebook of a sandbox in a real browser: cells of whoever, plots, contexts, interrupts; over a killed server.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client } from '@tend/client';
import { accessible, complaints, killServer, leave, loggedIn, says, shots, tend, token, url } from './stage.js';

test('code: cells with their plots, of the page and of others; contexts; an interrupt; over a killed server', async () => {
  await tend('template', 'build', '-q', 'code-interpreter');
  const client = await Client.connect({ url, token });
  const box = await client.createSandbox({ name: 'cells', template: 'code-interpreter-v1', isolation: 'full', timeout: 3_600_000 });
  const page = await loggedIn();
  await page.click('.row.item:has-text("cells") a');
  await page.click('.head a:text-is("Code")');
  await page.waitForSelector('text=No cell has run here yet');
  const run = async (code: string) => {
    await page.fill('textarea', code);
    await page.press('textarea', 'Shift+Enter');
  };
  await run('import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()\nprint("<b>out</b>")\n6 * 7');
  await page.waitForSelector('.cell img[alt="Plot of cell 1"]');
  await says(page, '.cell', /\[1\].*import matplotlib.*<b>out<\/b>.*42/s);
  assert.ok(await page.$eval('.cell img', (i) => (i as HTMLImageElement).naturalWidth > 100), 'the plot is drawn');
  await accessible(page);
  await shots(page, 'code');
  // Whoever gives a cell, all who look see it, and it goes on without the server.
  await box.code('kept = 5\n1/0');
  await says(page, '.cell:last-of-type', /\[2\].*kept = 5.*ZeroDivisionError/s);
  await run('import time\nprint("begun", flush=True)\ntime.sleep(600)');
  await says(page, '.cell:last-of-type', /\[\*\].*begun/s);
  await killServer();
  await page.click('.cell:last-of-type button:text-is("Interrupt")');
  await says(page, '.cell:last-of-type', /\[3\].*begun.*KeyboardInterrupt/s);
  await page.reload();
  await says(page, '.cell:last-of-type', /\[3\].*KeyboardInterrupt/s);
  assert.equal(await page.locator('.cell').count(), 3);
  // Another context has other variables; one that is restarted has none.
  await page.click('button:text-is("New context")');
  await page.waitForSelector('.tabs button[aria-pressed="true"]:has-text("python 3")');
  await run("'kept' in globals()");
  await says(page, '.cell', /False/);
  // One of another language, and one that no kernel speaks.
  await page.fill('input[list]', 'bash');
  await page.click('button:text-is("New context")');
  await page.waitForSelector('.tabs button[aria-pressed="true"]:has-text("bash")');
  await run('echo $((6 * 7))');
  await says(page, '.cell', /42/);
  await page.fill('input[list]', 'cobol');
  await page.press('input[list]', 'Enter');
  await says(page, '[role="alert"]', /cobol.*javascript.*bash/s);
  await page.click('.tabs button:has-text("python 1")');
  await says(page, '.cell:last-of-type', /KeyboardInterrupt/);
  await page.click('button:text-is("Restart")');
  await run("'kept' in globals()");
  await says(page, '.cell:last-of-type', /\[1\].*False/s);
  assert.deepEqual(complaints, []);
  await leave(page);
  await box.destroy();
  client.close();
});
