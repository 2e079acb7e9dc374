import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Sandbox } from '@e2b/code-interpreter'
import { Sandbox as OlderSandbox } from 'code-interpreter-v1'

let sbx

before(async () => {
  sbx = await Sandbox.create()
})
after(() => sbx?.kill())

test('the quick start', async () => {
  await sbx.runCode('x = 1')
  const execution = await sbx.runCode('x += 1; x')
  assert.equal(execution.text, '2')
})

test('output, errors, charts and variables', async () => {
  const lines = []
  let got = await sbx.runCode("import os\nprint(os.environ['NAME'])\n1/0", { envs: { NAME: "o'hara" }, onStdout: (m) => lines.push(m.line) })
  assert.deepEqual([lines, got.error.name], [["o'hara\n"], 'ZeroDivisionError'])
  got = await sbx.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\nplt.show()')
  assert.equal(got.results[0].chart.type, 'line')
  assert.ok(got.results[0].png)
})

test('contexts have variables of their own', async () => {
  const context = await sbx.createCodeContext({ cwd: '/tmp' })
  assert.equal((await sbx.runCode('import os; os.getcwd()', { context })).text, '/tmp')
  assert.equal((await sbx.runCode('x', { context })).error.name, 'NameError')
  await sbx.removeCodeContext(context)
  await assert.rejects(sbx.runCode('1', { context }), /not found/)
})

test('a cell whose time is over is interrupted, and its kernel stays', async () => {
  await sbx.runCode('kept = 5')
  await assert.rejects(sbx.runCode('import time\ntime.sleep(600)', { timeoutMs: 1000 }))
  assert.equal((await sbx.runCode('kept')).text, '5')
})

test('JavaScript, TypeScript and bash', async () => {
  const run = async (language, code, options) => sbx.runCode(code, { language, ...options })
  assert.equal((await run('js', 'const a = 1; a')).text, '1')
  assert.equal((await run('js', 'const a = await Promise.resolve({ b: [2] }); a')).results[0].json.b[0], 2)
  assert.deepEqual((await run('js', "import { readFileSync } from 'fs'\nconsole.log(typeof readFileSync)")).logs.stdout, ['function\n'])
  assert.equal((await run('js', 'process.env.FOO', { envs: { FOO: "o'hara" } })).text, '"o\'hara"'.slice(1, -1))
  assert.equal((await run('javascript', 'null.x')).error.name, 'TypeError')
  assert.deepEqual((await run('ts', "enum E { A = 'x' }; const m: string = E.A; console.log(m)")).logs.stdout, ['x\n'])
  assert.equal((await run('ts', 'let x: = 1')).error.name, 'SyntaxError')
  const bash = await run('bash', 'cd /tmp; echo $PWD; echo e >&2; false')
  assert.deepEqual([bash.logs.stdout, bash.logs.stderr, bash.error.value], [['/tmp\n'], ['e\n'], '1'])
  await assert.rejects(run('cobol', 'STOP RUN.'), /500/) // this SDK shows the status alone
})

test('each language is interrupted, and its kernel stays', async () => {
  for (const [language, busy, keep, kept, want] of [
    ['js', 'while (true) {}', 'const kept = 5', 'kept', '5'],
    ['js', 'await new Promise(() => {})', 'const kept = 6', 'kept', '6'],
    ['bash', 'while :; do sleep 1; done; echo more', 'kept=7', 'echo $kept', '7\n'],
  ]) {
    await sbx.runCode(keep, { language })
    await assert.rejects(sbx.runCode(busy, { language, timeoutMs: 500 }))
    const got = await sbx.runCode(kept, { language })
    assert.equal(got.text ?? got.logs.stdout[0], want)
  }
})

test('an older package does the same', async () => {
  const older = await OlderSandbox.connect(sbx.sandboxId)
  assert.equal((await older.runCode('kept')).text, '5')
  const context = await older.createCodeContext({ language: 'js' })
  assert.equal((await older.runCode('1 + 1', { context })).text, '2')
  await older.removeCodeContext(context)
})
