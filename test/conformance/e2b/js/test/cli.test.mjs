// E2B's command line, with which people look into sandboxes.
import { test, describe, before, after } from 'node:test'
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { Sandbox } from 'e2b'
import { makeSandboxes } from '../helpers.mjs'

makeSandboxes()
const program = fileURLToPath(new URL('../node_modules/@e2b/cli/dist/index.js', import.meta.url))

/** What a call of the command line ends with. */
const e2b = (...args) =>
  new Promise((resolve) => {
    const env = { ...process.env, E2B_ACCESS_TOKEN: 'any' }
    const child = execFile(process.execPath, [program, ...args], { timeout: 120_000, env }, (err, stdout, stderr) =>
      resolve({ status: err ? (err.code ?? err.signal) : 0, stdout, stderr }),
    )
    child.stdin.end() // exec passes it on
  })

describe('the command line', () => {
  let sbx
  before(async () => {
    sbx = await Sandbox.create({ timeoutMs: 300_000 })
  })
  after(() => sbx.kill())

  test('list', async () => {
    const res = await e2b('sandbox', 'list', '-f', 'json')
    assert.equal(res.status, 0, res.stderr)
    assert.ok(JSON.parse(res.stdout).some((s) => s.sandboxId === sbx.sandboxId), res.stdout)
  })

  test('exec, with its exit status', async () => {
    const res = await e2b('sandbox', 'exec', sbx.sandboxId, 'echo by the cli; exit 4')
    assert.equal(res.stdout, 'by the cli\n')
    assert.equal(res.status, 4, res.stderr)
  })

  test('logs, as text and as JSON, by level and logger', async () => {
    await sbx.commands.run('echo a line of the log; echo "{\\"of\\": \\"JSON\\"}"; echo wrong >&2')
    const text = await e2b('sandbox', 'logs', sbx.sandboxId)
    assert.equal(text.status, 0, text.stderr)
    for (const want of ['INFO', 'started: ', 'a line of the log', 'ERROR', 'wrong']) assert.ok(text.stdout.includes(want), `${want} is not in ${text.stdout}`)
    assert.ok(!text.stdout.includes('undefined'), text.stdout)
    const json = await e2b('sandbox', 'logs', sbx.sandboxId, '--format', 'json', '--level', 'ERROR', '--loggers', 'process')
    assert.equal(json.status, 0, json.stderr)
    assert.ok(json.stdout.includes('wrong') && !json.stdout.includes('a line of the log'), json.stdout)
  })

  test('kill', async () => {
    const other = await Sandbox.create({ timeoutMs: 300_000 })
    const res = await e2b('sandbox', 'kill', other.sandboxId)
    assert.equal(res.status, 0, res.stderr)
    assert.equal(await other.isRunning(), false)
  })
})
