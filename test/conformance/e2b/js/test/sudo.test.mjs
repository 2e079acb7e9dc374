// sudo for the user of E2B's sandboxes, without a password, as models write it.
import { test, describe, before, after } from 'node:test'
import assert from 'node:assert/strict'
import { Sandbox, Template } from 'e2b'
import { makeSandboxes, until } from '../helpers.mjs'

makeSandboxes()

describe('sudo', () => {
  let sbx
  const run = async (line, opts) => sbx.commands.run(line, opts).catch((e) => e)
  before(async () => {
    sbx = await Sandbox.create('base', { timeoutMs: 300_000 })
  })
  after(() => sbx?.kill())

  test('a command is root’s, with its output, input and status', async () => {
    assert.equal((await run('id -un')).stdout, 'user\n')
    assert.equal((await run('sudo id -u')).stdout, '0\n')
    const res = await run('sudo sh -c "echo out; echo err >&2; exit 7"')
    assert.deepEqual([res.stdout, res.stderr, res.exitCode], ['out\n', 'err\n', 7])
    assert.equal((await run('echo in | sudo cat')).stdout, 'in\n')
    assert.equal((await run('sudo sh -c "kill -9 \\$\\$"')).exitCode, 137)
    assert.equal((await run('sudo mkdir -p /workspace && sudo chown user /workspace && cd /workspace && touch a && sudo pwd')).stdout, '/workspace\n')
    assert.equal((await run('echo secret | sudo tee /root/file >/dev/null; cat /root/file')).exitCode, 1)
    assert.equal((await run('sudo cat /root/file')).stdout, 'secret\n')
  })

  test('options: users, environment, shells', async () => {
    assert.equal((await run('sudo -u user id -un')).stdout, 'user\n')
    assert.equal((await run('sudo sudo -u user sudo -n id -un')).stdout, 'root\n')
    assert.equal((await run('A=1 sudo env | grep -c ^A=')).stdout, '0\n')
    assert.equal((await run('A=1 sudo -E env | grep ^A=')).stdout, 'A=1\n')
    assert.equal((await run('A=1 B=2 sudo --preserve-env=A env | grep -E "^(A|B)="')).stdout, 'A=1\n')
    assert.equal((await run('sudo X=3 sh -c "echo $X \\$X \\$HOME \\$USER \\$SUDO_USER"')).stdout, '3 /root root user\n')
    assert.equal((await run('sudo -i pwd')).stdout, '/root\n')
    assert.equal((await run('sudo -s echo "a  b"')).stdout, 'a  b\n')
    assert.match((await run('sudo -H -S -n -k whoami')).stdout, /^root/)
    assert.equal((await run('sudo -v')).exitCode, 0)
    for (const [line, says] of [
      ['sudo', /usage/], ['sudo -Z id', /-Z is not supported/], ['sudo -u nobody-there id', /unknown user/], ['sudo no-such-program', /command not found/],
    ]) {
      const res = await run(line)
      assert.equal(res.exitCode, 1, line)
      assert.match(res.stderr, says)
    }
  })

  test('a command ends with its caller, and signals reach it', async () => {
    const handle = await sbx.commands.run(`sudo sh -c 'trap "echo got; exit 3" INT; echo ready; while :; do sleep 0.05; done'`, { background: true })
    await until('it runs', () => handle.stdout.includes('ready'))
    await run('pkill -INT -u user -x sudo')
    const res = await handle.wait().catch((e) => e)
    assert.deepEqual([res.exitCode, res.stdout], [3, 'ready\ngot\n'])
    const other = await sbx.commands.run('sudo sleep 98765', { background: true })
    await until('it runs', async () => (await run('pgrep -f "^sleep 98765"')).exitCode === 0)
    await other.kill()
    await until('it is gone', async () => (await run('pgrep -f "^sleep 98765"')).exitCode === 1)
    await until('nothing is left of it', async () => (await sbx.commands.list()).every((p) => !p.args.includes('--tend-root')))
  })

  test('who asks without end leaves nothing, and holds up nobody else', async () => {
    const other = await Sandbox.create('base', { timeoutMs: 300_000 })
    try {
      const flood = await sbx.commands.run('for i in $(seq 1 300); do curl -s -m 20 -o /dev/null -X POST http://localhost:49983/-/sudo/$(printf %032x $i) & done; wait', { background: true })
      assert.equal((await other.commands.run('sudo id -u')).stdout, '0\n')
      await flood.wait()
      await until('no helper is left', async () => (await sbx.commands.list()).length === 0)
      assert.equal((await run('sudo id -u')).stdout, '0\n')
    } finally {
      await other.kill()
    }
  })

  test('a step of a build may use it', async () => {
    const alias = `sudo-${process.pid}-${Date.now()}`
    const template = Template().fromTemplate('base').runCmd('sudo mkdir /made && sudo chown user /made && touch /made/by-user')
    await Template.build(template, { alias })
    const made = await Sandbox.create(alias, { timeoutMs: 60_000 })
    try {
      assert.equal((await made.commands.run('ls /made && sudo id -u')).stdout, 'by-user\n0\n')
    } finally {
      await made.kill()
    }
  })

  test('no setuid file, no other user, nobody between', async () => {
    assert.equal((await run('stat -c "%a %U" /usr/bin/sudo')).stdout, '755 root\n')
    const res = await run('sudo -u nobody sudo id')
    assert.equal(res.exitCode, 1)
    assert.match(res.stderr, /nobody may not use sudo here/)
    // A caller that gives itself out for the helper is not root for the kernel, and a helper serves root and user alone.
    const asked = await run('curl -sS -o /dev/null -w "%{http_code}" -X POST http://localhost:49983/-/sudo/x')
    assert.equal(asked.stdout, '404')
    const nobody = await run(`curl -sS -m 10 -o /dev/null -w "%{http_code}" -X POST http://localhost:49983/-/sudo/${'0'.repeat(32)}`)
    assert.equal(nobody.stdout, '204') // the helper found nobody, and has ended
    assert.equal((await run('sudo /usr/bin/sudo --tend-root 00')).exitCode, 1)
    assert.match((await run('/usr/bin/sudo --tend-root 00')).stderr, /started by the server/)
  })
})
