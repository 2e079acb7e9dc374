import { test, describe, before } from 'node:test'
import assert from 'node:assert/strict'
import { NotFoundError, TimeoutError } from 'e2b'
import { sandbox, until, inTime, begun, alive, users, named, homeOf, me } from '../helpers.mjs'

const bytes = (text) => new TextEncoder().encode(text)

describe('pty', () => {
  let sbx
  before(async () => { sbx = await sandbox() })

  /** A terminal whose screen text can be waited for. */
  async function terminal(opts = {}) {
    const term = { text: '' }
    const decoder = new TextDecoder()
    term.onData = (d) => { term.text += decoder.decode(d, { stream: true }) }
    term.handle = await sbx.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: term.onData, ...opts })
    term.type = (text) => sbx.pty.sendInput(term.handle.pid, bytes(text))
    term.sees = (re) => until(`${re} in ${JSON.stringify(term.text.slice(-400))}`, () => re.exec(term.text))
    return term
  }

  for (const user of users) {
    test(`a shell runs as ${named(user)} with a terminal of the given size`, async () => {
      const term = await terminal({ user, cols: 101, rows: 31 })
      await term.type('echo "<$(id -un)|$(tty | cut -c1-9)|$(stty size)|$TERM|$PWD>"\n')
      const [, got] = await term.sees(/<([^$]*\|[^>]*)>\r/)
      assert.equal(got, `${user ?? me}|/dev/pts/|31 101|xterm-256color|${homeOf(user)}`)
      await term.type('exit\n')
      assert.equal((await term.handle.wait()).exitCode, 0)
    })
  }

  test('the exit code is that of the shell', async () => {
    const term = await terminal()
    await term.type('exit 9\n')
    await assert.rejects(term.handle.wait(), (err) => err.exitCode === 9)
  })
  test('resize reaches the program', async () => {
    const term = await terminal()
    await sbx.pty.resize(term.handle.pid, { cols: 132, rows: 43 })
    await term.type('echo "<$(stty size)>"\n')
    await term.sees(/<43 132>/)
    assert.equal(await term.handle.kill(), true)
  })
  test('a program is told of a resize by SIGWINCH', async () => {
    const term = await terminal()
    await term.type('trap \'echo "<winch $(stty size)>"\' WINCH; echo re""ady\n')
    await term.sees(/ready\r/)
    await sbx.pty.resize(term.handle.pid, { cols: 70, rows: 20 })
    await term.type('\n')
    await term.sees(/<winch 20 70>/)
    assert.equal(await sbx.pty.kill(term.handle.pid), true)
  })
  test('envs and cwd are taken', async () => {
    const term = await terminal({ envs: { FOO: 'bär' }, cwd: '/tmp' })
    await term.type('echo "<$FOO $PWD>"\n')
    await term.sees(/<bär \/tmp>/)
    await term.handle.kill()
  })
  test('ctrl-c interrupts the program, not the shell', async () => {
    const term = await terminal()
    await term.type('sh -c \'echo beg""un; exec sleep 60\'\n')
    await term.sees(/begun\r/)
    await term.type('\x03')
    await term.type('echo "<status $?>"\n')
    await term.sees(/<status 130>/)
    await term.handle.kill()
  })
  test('ctrl-d ends the shell', async () => {
    const term = await terminal()
    // The shell reads ctrl-d as an end only once it has set up its prompt.
    await term.type("PS1='pro''mpt>'\n")
    await term.sees(/prompt>/)
    await term.type('\x04')
    assert.equal((await term.handle.wait()).exitCode, 0)
  })
  test('kill ends it; a second kill is false', async () => {
    const term = await terminal()
    assert.equal(await sbx.pty.kill(term.handle.pid), true)
    await assert.rejects(term.handle.wait(), (err) => err.exitCode === -1)
    assert.equal(await sbx.pty.kill(term.handle.pid), false)
  })
  test('a second connection gets the same terminal and can type', async () => {
    const term = await terminal()
    await term.type('A=kept; echo re""ady\n')
    await term.sees(/ready\r/)
    await term.handle.disconnect()
    let text = ''
    const again = await sbx.pty.connect(term.handle.pid, { timeoutMs: 0, onData: (d) => { text += new TextDecoder().decode(d) } })
    assert.equal(again.pid, term.handle.pid)
    await sbx.pty.sendInput(again.pid, bytes('echo "<$A>"\n'))
    await until('the variable', () => /<kept>/.test(text))
    await sbx.pty.sendInput(again.pid, bytes('exit\n'))
    await again.wait()
  })
  test('it is listed while it lives', async () => {
    const term = await terminal()
    const mine = (await sbx.commands.list()).find((p) => p.pid === term.handle.pid)
    assert.equal(mine.cmd, '/bin/bash')
    assert.deepEqual(mine.args, ['-i', '-l'])
    assert.equal(mine.envs.TERM, 'xterm-256color')
    await term.handle.kill()
  })
  test('the timeout ends the terminal', async () => {
    let term
    await inTime(1000, async (timeoutMs) => (term = await begun(terminal({ timeoutMs }))))
    await assert.rejects(term.handle.wait(), TimeoutError)
    await until('the shell is gone', async () => !(await alive(sbx, term.handle.pid)))
  })
  test('4 MiB through a raw terminal arrive byte for byte', async () => {
    let count = 0, wrong
    const first = await terminal()
    await first.type('stty raw -echo; echo re""ady\n')
    await first.sees(/ready/)
    const reader = await sbx.pty.connect(first.handle.pid, {
      timeoutMs: 0,
      onData: (d) => { for (const b of d) { if (b === 0x78) count++; else if (b === 0x79) wrong ??= count } },
    })
    await first.type('head -c 4194304 /dev/zero | tr "\\0" x; printf y; exit\n')
    await reader.wait()
    assert.equal(count, 4194304)
    assert.equal(wrong, 4194304, 'y comes last')
  })
  test('resize, input and kill of an unknown terminal', async () => {
    await assert.rejects(sbx.pty.resize(4_000_000, { cols: 80, rows: 24 }), NotFoundError)
    await assert.rejects(sbx.pty.sendInput(4_000_000, bytes('x')), NotFoundError)
    assert.equal(await sbx.pty.kill(4_000_000), false)
  })
  test('resize of a process without a terminal is refused', async () => {
    const handle = await sbx.commands.run('sleep 60', { background: true })
    await assert.rejects(sbx.pty.resize(handle.pid, { cols: 80, rows: 24 }), /tty not assigned to process/)
    await assert.rejects(sbx.pty.sendInput(handle.pid, bytes('x')), /tty not assigned to process/)
    await handle.kill()
  })
})
