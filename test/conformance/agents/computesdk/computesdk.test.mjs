// The provider of computesdk for E2B: what its interface has for each provider, and what it leaves to E2B's package below.
import { test, describe, before, after } from 'node:test'
import assert from 'node:assert/strict'
import http from 'node:http'
import { compute } from 'computesdk'
import { e2b } from '@computesdk/e2b'

compute.setConfig({ provider: e2b({ apiKey: process.env.E2B_API_KEY }) })
const snapshots = e2b({ apiKey: process.env.E2B_API_KEY }).snapshot

/** Waits until check() is truthy; the bound only ends a test that fails. */
async function until(what, check, bound = 120_000) {
  for (const end = Date.now() + bound; ;) {
    const value = await check()
    if (value) return value
    if (Date.now() > end) throw new Error(`waited ${bound} ms in vain: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** GET of a sandbox's URL, whose name needs no resolver here: {status, body}. */
const get = (url) =>
  new Promise((resolve, reject) => {
    const { host, pathname } = new URL(url)
    const at = new URL(process.env.TEND_E2B_URL)
    const req = http.get({ host: at.hostname, port: at.port, path: pathname, headers: { host } }, (res) => {
      let body = ''
      res.setEncoding('utf8')
      res.on('data', (text) => (body += text))
      res.on('end', () => resolve({ status: res.statusCode, body }))
    })
    req.on('error', reject)
  })

describe('computesdk', () => {
  let s
  before(async () => {
    s = await compute.sandbox.create({ timeout: 600_000, envs: { ALWAYS: '1' }, metadata: { by: 'computesdk' } })
  })
  after(() => s.destroy())

  test('commands: output and exit codes', async () => {
    for (const code of [0, 3, 127, 255]) {
      const r = await s.runCommand(`echo out; echo err >&2; exit ${code}`)
      assert.deepEqual([r.exitCode, r.stdout, r.stderr], [code, 'out\n', 'err\n'])
    }
  })

  test('commands: directory and variables', async () => {
    const r = await s.runCommand(`sh -c 'echo $ALWAYS "$ONCE"; pwd; id -un'`, { cwd: '/tmp', env: { ONCE: 'a $b' } })
    assert.deepEqual([r.exitCode, r.stdout], [0, '1 a $b\n/tmp\nuser\n'])
  })

  test('twenty at once', async () => {
    const all = await Promise.all(Array.from({ length: 20 }, (_, n) => s.runCommand(`sleep 1; echo ${n}; exit ${n}`)))
    assert.deepEqual(all.map((r) => [r.exitCode, r.stdout]), all.map((_, n) => [n, `${n}\n`]))
  })

  test('files', async () => {
    const fs = s.filesystem
    await fs.mkdir('/workspace/src')
    await fs.writeFile('/workspace/src/a.txt', 'hi ž')
    assert.equal(await fs.readFile('/workspace/src/a.txt'), 'hi ž')
    assert.deepEqual((await fs.readdir('/workspace/src')).map((e) => [e.name, e.size]), [['a.txt', 5]])
    assert.equal((await s.runCommand('cat a.txt; echo 2 >>a.txt; stat -c %U a.txt', { cwd: '/workspace/src' })).stdout, 'hi žuser\n')
    await fs.remove('/workspace/src')
    assert.equal(await fs.exists('/workspace/src/a.txt'), false)
  })

  test('a server in the background, by its URL', async () => {
    await s.runCommand('mkdir -p /tmp/www && echo served >/tmp/www/index.html')
    await s.runCommand('python -m http.server 3000 --directory /tmp/www', { background: true })
    const url = await s.getUrl({ port: 3000 })
    const res = await until('the server answers', async () => {
      const res = await get(url)
      return res.status === 200 && res
    })
    assert.equal(res.body, 'served\n')
    const none = await get(await s.getUrl({ port: 3001 }))
    assert.equal(none.status, 502)
    assert.match(none.body, /port is not open/)
  })

  test('streams and terminals, by the instance below', async () => {
    const raw = s.getInstance()
    const parts = []
    const r = await raw.commands.run('echo first; sleep 1; echo second', { onStdout: (text) => parts.push([text, Date.now()]) })
    assert.equal(r.exitCode, 0)
    assert.deepEqual(parts.map(([text]) => text), ['first\n', 'second\n'])
    assert.ok(parts[1][1] - parts[0][1] > 500, 'the first comes as it is written')
    let shown = ''
    const pty = await raw.pty.create({ cols: 100, rows: 30, onData: (data) => (shown += Buffer.from(data).toString()) })
    await raw.pty.sendInput(pty.pid, Buffer.from('stty size; exit 5\n'))
    await assert.rejects(pty.wait(), (e) => e.exitCode === 5)
    assert.match(shown, /30 100/)
  })

  test('a list, and the same sandbox by its ID, also after a pause', async () => {
    assert.ok((await compute.sandbox.list()).some((x) => x.sandboxId === s.sandboxId))
    await s.runCommand('echo kept >/home/user/kept; nohup sleep 3600 >/dev/null 2>&1 & echo $! >/home/user/pid')
    assert.equal(await s.getInstance().pause(), true)
    const again = await compute.sandbox.getById(s.sandboxId)
    const r = await again.runCommand('cat kept; kill -0 $(cat pid) && echo alive')
    assert.equal(r.stdout, 'kept\nalive\n')
    assert.equal(await compute.sandbox.getById('i00000000000000000000'), null)
  })

  test('sandboxes from snapshots, whose name moves', async () => {
    const made = []
    for (const text of ['first', 'second']) {
      await s.filesystem.writeFile('/srv/state', text)
      made.push(await snapshots.create(s.sandboxId, { name: 'state' }))
    }
    await s.filesystem.writeFile('/srv/state', 'after both')
    for (const [snapshotId, want] of [[made[0].id, 'first'], [made[1].id, 'second'], ['state', 'second']]) {
      const copy = await compute.sandbox.create({ snapshotId })
      try {
        assert.notEqual(copy.sandboxId, s.sandboxId)
        assert.equal(await copy.filesystem.readFile('/srv/state'), want)
      } finally {
        await copy.destroy()
      }
    }
  })

  test('a burst of creations, each with a command, and their end', async () => {
    const all = await Promise.all(
      Array.from({ length: 20 }, async (_, n) => {
        const one = await compute.sandbox.create()
        const r = await one.runCommand(`echo ${n}`)
        await one.destroy()
        return [one.sandboxId, r.stdout]
      }),
    )
    assert.deepEqual(all.map(([, out]) => out), all.map((_, n) => `${n}\n`))
    const left = new Set((await compute.sandbox.list()).map((x) => x.sandboxId))
    assert.deepEqual(all.filter(([id]) => left.has(id)), [])
  })
})
