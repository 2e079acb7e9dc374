// E2B's command line, with which people look into sandboxes.
import { test, describe, before, after } from 'node:test'
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { Sandbox } from 'e2b'
import { makeSandboxes } from '../helpers.mjs'

makeSandboxes()
const program = fileURLToPath(new URL('../node_modules/@e2b/cli/dist/index.js', import.meta.url))

/** What a program ends with that has a call of the command line in it. */
const run = (file, args, stdin = '') =>
  new Promise((resolve) => {
    const env = { ...process.env, E2B_ACCESS_TOKEN: 'any' }
    const child = execFile(file, args, { timeout: 120_000, env }, (err, stdout, stderr) =>
      resolve({ status: err ? (err.code ?? err.signal) : 0, stdout, stderr }),
    )
    child.stdin.end(stdin) // exec passes it on
  })

/** What a call of the command line ends with. */
const e2b = (...args) => run(process.execPath, [program, ...args])

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

  test('exec with a user, a directory, variables, and its input', async () => {
    const args = ['sandbox', 'exec', '-u', 'root', '-c', '/srv', '-e', 'A=1', sbx.sandboxId, 'id -un; pwd; echo $A; wc -l']
    const res = await run(process.execPath, [program, ...args], 'one\ntwo\n')
    assert.equal(res.stdout, 'root\n/srv\n1\n2\n', res.stderr)
  })

  test('exec in the background', async () => {
    const res = await e2b('sandbox', 'exec', '-b', sbx.sandboxId, 'echo begun >/tmp/begun; sleep 3600')
    assert.equal(res.status, 0, res.stderr)
    const found = await sbx.commands.run('until [ -s /tmp/begun ]; do sleep 0.05; done; pgrep -x sleep')
    assert.match(found.stdout, /^\d+\n$/)
  })

  test('connect: a shell in a terminal', async () => {
    const command = `'${process.execPath}' '${program}' sandbox connect ${sbx.sandboxId}`
    const res = await run('script', ['-qec', command, '/dev/null'], 'tty; echo "sum $((6*7))"; id -un; exit 3\n')
    assert.match(res.stdout.replaceAll('\r', ''), /\/dev\/pts\/\d+\nsum 42\nuser\n/)
    assert.match(res.stdout, /exit status 3/)
  })

  test('info and metrics', async () => {
    const info = JSON.parse((await e2b('sandbox', 'info', '-f', 'json', sbx.sandboxId)).stdout)
    assert.deepEqual([info.sandboxId, info.templateId, info.state], [sbx.sandboxId, 'base', 'running'])
    const metrics = await e2b('sandbox', 'metrics', '--format', 'json', sbx.sandboxId)
    assert.equal(metrics.status, 0, metrics.stderr)
    assert.ok(JSON.parse(metrics.stdout.trim().split('\n').at(-1)).memTotal > 0, metrics.stdout)
  })

  test('snapshots, and the templates that there are', async () => {
    const made = await e2b('sandbox', 'snapshot', 'create', sbx.sandboxId)
    const id = /Created snapshot (\S+) from/.exec(made.stdout)?.[1]
    assert.ok(id, made.stdout + made.stderr)
    assert.ok((await e2b('sandbox', 'snapshot', 'list', sbx.sandboxId)).stdout.includes(id))
    assert.equal((await e2b('sandbox', 'snapshot', 'delete', id)).status, 0)
    assert.equal(await Sandbox.deleteSnapshot(id), false)
    const templates = JSON.parse((await e2b('template', 'list', '-f', 'json')).stdout)
    assert.ok(templates.some((t) => t.names.includes('base')), templates)
  })

  test('create, pause, resume, kill', async () => {
    const made = await e2b('sandbox', 'create', '--detach', '--timeout', '300', 'base')
    assert.equal(made.status, 0, made.stderr)
    const id = /\b[a-z0-9]{20}\b/.exec(made.stdout)?.[0]
    const state = async () => (await Sandbox.getInfo(id)).state
    assert.equal((await e2b('sandbox', 'exec', id, 'echo 1 >kept; (sleep 3600 >/dev/null 2>&1 & echo $! >pid)')).status, 0)
    assert.equal((await e2b('sandbox', 'pause', id)).status, 0)
    assert.equal(await state(), 'paused')
    assert.equal((await e2b('sandbox', 'resume', id)).status, 0)
    assert.equal(await state(), 'running')
    assert.equal((await e2b('sandbox', 'exec', id, 'kill -0 $(cat pid) && cat kept')).stdout, '1\n')
    assert.match((await e2b('sandbox', 'kill', id)).stdout, /has been killed/)
    assert.equal(await Sandbox.kill(id), false)
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
})
