// tend's own SDK for JavaScript: code.mjs; E2B_API_URL names the daemon.
import assert from 'node:assert/strict';
import { Client } from '../../../../sdk/js/dist/index.js';

const client = await Client.connect({ url: process.env.E2B_API_URL });
const box = await client.createSandbox({ template: 'code-interpreter-v1', isolation: 'full', timeout: 600_000, env: { ALWAYS: '1' } });
try {
  const seen = [];
  const r = await box.code("import os\nprint('out')\nn = 20\nos.environ['ALWAYS'] + os.environ['ONCE']", { env: { ONCE: '2' }, onEvent: (e) => seen.push(e.type) });
  assert.deepEqual({ ...r, values: r.values.map((v) => v.text) }, { text: '12', values: ['12'], stdout: 'out\n', stderr: '', count: 1, timedOut: false });
  assert.deepEqual(seen, ['number_of_executions', 'stdout', 'result', 'end_of_execution']);
  assert.match((await box.code('import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()')).values[0].png, /^iVBOR/);
  assert.equal((await box.code('1/0')).error?.name, 'ZeroDivisionError');
  assert.equal((await box.code('console.log(6 * 7)', { language: 'js' })).stdout, '42\n');
  const late = await box.code('import time; time.sleep(600)', { timeout: 1000 });
  assert.ok(late.timedOut && late.error?.name === 'KeyboardInterrupt', JSON.stringify(late));
  const stop = new AbortController();
  await assert.rejects(box.code("print('begun', flush=True); time.sleep(600)", { signal: stop.signal, onEvent: (e) => e.type === 'stdout' && stop.abort() }));
  assert.equal((await box.code('n')).text, '20');
  const other = await box.codeContexts.create({ language: 'bash', dir: '/tmp' });
  assert.ok((await box.codeContexts.list()).some((c) => c.id === other.id && c.dir === '/tmp'));
  assert.equal((await box.code('pwd', { context: other.id })).stdout, '/tmp\n');
  await box.codeContexts.restart(other.id);
  await box.codeContexts.remove(other.id);
  await box.codeContexts.remove(other.id);
  await assert.rejects(box.code('1', { context: other.id }), { code: 'not_found' });
  await assert.rejects(box.code('1', { language: 'r' }), { code: 'invalid' });
} finally {
  await box.destroy();
  client.close();
}
console.log('the SDK for JavaScript runs code');
