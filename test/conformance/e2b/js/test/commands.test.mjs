import { test, describe, before } from 'node:test'
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { CommandExitError, AuthenticationError, InvalidArgumentError, NotFoundError, TimeoutError } from 'e2b'
import { sandbox, scratch, until, inTime, begun, alive, users, named, homeOf, me, other } from '../helpers.mjs'

describe('commands', () => {
  let sbx
  before(async () => { sbx = await sandbox() })

  for (const user of users) {
    describe(`as ${named(user)}`, () => {
      test('a command runs as that user in the home of that user', async () => {
        const res = await sbx.commands.run('id -un; pwd; echo "$HOME $USER $LOGNAME"; id -G', { user })
        const name = user ?? me
        const home = homeOf(user)
        const groups = await sbx.commands.run(`id -G ${name}`)
        assert.equal(res.stdout, `${name}\n${home}\n${home} ${name} ${name}\n${groups.stdout}`)
        assert.equal(res.exitCode, 0)
        assert.equal(res.stderr, '')
      })
      test('files that a command makes belong to that user', async (t) => {
        const dir = scratch(t)
        const res = await sbx.commands.run(`touch ${dir}/f && stat -c %U ${dir}/f`, { user })
        assert.equal(res.stdout, `${user ?? me}\n`)
      })
      test('a relative cwd and ~ start at the home', async () => {
        const home = homeOf(user)
        assert.equal((await sbx.commands.run('pwd', { user, cwd: '~' })).stdout, `${home}\n`)
        assert.equal((await sbx.commands.run('pwd', { user, cwd: '.' })).stdout, `${home}\n`)
      })
      test('a non-zero exit throws with code, error and both outputs', async () => {
        await assert.rejects(sbx.commands.run('echo out; echo err >&2; exit 7', { user }), (err) => {
          assert.ok(err instanceof CommandExitError)
          assert.equal(err.exitCode, 7)
          assert.equal(err.error, 'exit status 7')
          assert.equal(err.stdout, 'out\n')
          assert.equal(err.stderr, 'err\n')
          return true
        })
      })
    })
  }

  test('an unknown user is refused as unauthenticated', async () => {
    await assert.rejects(sbx.commands.run('true', { user: 'no-such-user' }), (err) => {
      assert.ok(err instanceof AuthenticationError, String(err))
      assert.match(err.message, /invalid username: 'no-such-user'/)
      return true
    })
  })
  test('a missing cwd is an invalid argument', async () => {
    await assert.rejects(sbx.commands.run('true', { cwd: '/nope' }), (err) => {
      assert.ok(err instanceof InvalidArgumentError, String(err))
      assert.match(err.message, /cwd '\/nope' does not exist/)
      return true
    })
  })
  test('a missing command ends with 127 and says so on stderr', async () => {
    await assert.rejects(sbx.commands.run('no-such-command-at-all'), (err) => {
      assert.equal(err.exitCode, 127)
      assert.match(err.stderr, /not found/)
      return true
    })
  })
  test('a command killed by a signal of its own ends with -1', async () => {
    await assert.rejects(sbx.commands.run('kill -TERM $$'), (err) => {
      assert.ok(err instanceof CommandExitError, String(err))
      assert.equal(err.exitCode, -1)
      assert.equal(err.error, 'signal: terminated')
      return true
    })
  })
  test('environment variables reach the command and win', async () => {
    const res = await sbx.commands.run('printf "%s|%s|%s" "$A" "$HOME" "$EMPTY"', { envs: { A: 'b c=d "e"', HOME: '/tmp', EMPTY: '' } })
    assert.equal(res.stdout, 'b c=d "e"|/tmp|')
  })
  test('nothing of the environment of the daemon leaks in', async () => {
    const res = await sbx.commands.run('cat /proc/$$/environ | tr "\\0" "\\n" | cut -d= -f1 | sort')
    const names = res.stdout.trim().split('\n')
    for (const name of ['HOME', 'LOGNAME', 'PATH', 'USER']) assert.ok(names.includes(name), `${name} in ${names}`)
    assert.ok(!names.includes('TEND_BIN'), names.join())
    assert.ok(!names.includes('E2B_API_KEY'), names.join())
  })
  test('stdin is closed unless asked for', async () => {
    assert.equal((await sbx.commands.run('cat; echo end')).stdout, 'end\n')
  })
  test('stdout and stderr go to their own callbacks, in order', async () => {
    let out = '', err = ''
    const res = await sbx.commands.run('for i in $(seq 100); do echo o$i; echo e$i >&2; done', {
      onStdout: (d) => { out += d }, onStderr: (d) => { err += d },
    })
    const want = (p) => Array.from({ length: 100 }, (_, i) => `${p}${i + 1}\n`).join('')
    assert.equal(out, want('o'))
    assert.equal(err, want('e'))
    assert.equal(res.stdout, out)
    assert.equal(res.stderr, err)
  })
  test('a callback is called while the command runs', async (t) => {
    const dir = scratch(t)
    let seen = ''
    const handle = await sbx.commands.run(`echo first; while [ ! -e ${dir}/go ]; do sleep 0.02; done; echo last`, {
      background: true, onStdout: (d) => { seen += d },
    })
    await until('first line', () => seen === 'first\n')
    assert.equal(handle.exitCode, undefined)
    await sbx.files.write(`${dir}/go`, '')
    assert.equal((await handle.wait()).stdout, 'first\nlast\n')
  })
  test('characters split between reads arrive whole', async () => {
    // One byte a write, so that every multi-byte character is split.
    const text = 'grüß 世界 🚀 \u{1F468}\u200D\u{1F469}'
    const hex = Buffer.from(text).toString('hex')
    const res = await sbx.commands.run(`for b in $(echo ${hex} | fold -w2); do printf "\\\\x$b"; sleep 0.003; done`)
    assert.equal(res.stdout, text)
  })
  test('64 MiB of counted lines arrive byte for byte', async () => {
    const lines = 64 * 1024 * 1024 / 16
    let bytes = 0, next = 0, rest = '', wrong
    const handle = await sbx.commands.run(`awk 'BEGIN { for (i = 0; i < ${lines}; i++) printf "%015d\\n", i }'`, {
      background: true, timeoutMs: 0,
      onStdout: (d) => {
        bytes += d.length
        rest += d
        let at = 0
        for (; at + 16 <= rest.length; at += 16, next++) {
          if (Number(rest.slice(at, at + 15)) !== next || rest[at + 15] !== '\n') wrong ??= `line ${next} is ${JSON.stringify(rest.slice(at, at + 16))}`
        }
        rest = rest.slice(at)
      },
    })
    await handle.wait()
    assert.equal(wrong, undefined)
    assert.equal(bytes, 64 * 1024 * 1024)
    assert.equal(next, lines)
    assert.equal(rest, '')
  })
  test('16 commands at once keep their outputs apart', async () => {
    const all = await Promise.all(Array.from({ length: 16 }, (_, i) => sbx.commands.run(`seq ${i} ${i + 200}; exit ${i % 2 ? 0 : 0}`)))
    all.forEach((res, i) => assert.equal(res.stdout, Array.from({ length: 201 }, (_, n) => `${i + n}\n`).join('')))
  })

  describe('in the background', () => {
    test('a handle has the pid, and the process is listed with its config', async () => {
      const handle = await sbx.commands.run('sleep 60', { background: true, envs: { MARK: 'x' }, cwd: '/tmp' })
      const mine = (await sbx.commands.list()).find((p) => p.pid === handle.pid)
      assert.equal(mine.cmd, '/bin/bash')
      assert.deepEqual(mine.args, ['-l', '-c', 'sleep 60'])
      assert.deepEqual(mine.envs, { MARK: 'x' })
      assert.equal(mine.cwd, '/tmp')
      assert.equal(await handle.kill(), true)
      await assert.rejects(handle.wait(), (err) => err.exitCode === -1 && err.error === 'signal: killed')
      await until('gone from the list', async () => !(await sbx.commands.list()).some((p) => p.pid === handle.pid))
    })
    test('kill of a process that is gone, or never was, is false', async () => {
      const handle = await sbx.commands.run('exit 0', { background: true })
      await handle.wait()
      assert.equal(await sbx.commands.kill(handle.pid), false)
      assert.equal(await sbx.commands.kill(4_000_000), false)
    })
    test('disconnecting ends nothing', async () => {
      const handle = await sbx.commands.run('sleep 60', { background: true })
      await handle.disconnect()
      assert.ok(await alive(sbx, handle.pid))
      assert.equal(await sbx.commands.kill(handle.pid), true)
    })
    test('connect to a running command gets what comes from then on and the end', async (t) => {
      const dir = scratch(t)
      const first = await sbx.commands.run(`echo before; while [ ! -e ${dir}/go ]; do sleep 0.02; done; echo after; exit 3`, { background: true })
      await until('first output', () => first.stdout === 'before\n')
      let out = ''
      const second = await sbx.commands.connect(first.pid, { onStdout: (d) => { out += d } })
      assert.equal(second.pid, first.pid)
      await sbx.files.write(`${dir}/go`, '')
      await assert.rejects(second.wait(), (err) => err.exitCode === 3 && err.stdout === 'after\n')
      await assert.rejects(first.wait(), (err) => err.exitCode === 3 && err.stdout === 'before\nafter\n')
      assert.equal(out, 'after\n')
    })
    test('connect to a finished command gets its exit and no output', async () => {
      const handle = await sbx.commands.run('echo hello; exit 5', { background: true })
      await assert.rejects(handle.wait(), (err) => err.exitCode === 5)
      const late = await sbx.commands.connect(handle.pid)
      await assert.rejects(late.wait(), (err) => err.exitCode === 5 && err.stdout === '' && err.error === 'exit status 5')
    })
    test('connect to an unknown pid is not found', async () => {
      await assert.rejects(sbx.commands.connect(4_000_000), (err) => err instanceof NotFoundError && /process with pid 4000000 not found/.test(err.message))
    })
    test('ten connections all see the same', async (t) => {
      const dir = scratch(t)
      const first = await sbx.commands.run(`while [ ! -e ${dir}/go ]; do sleep 0.02; done; seq 20000`, { background: true })
      const others = await Promise.all(Array.from({ length: 10 }, () => sbx.commands.connect(first.pid)))
      await sbx.files.write(`${dir}/go`, '')
      const want = Array.from({ length: 20000 }, (_, i) => `${i + 1}\n`).join('')
      for (const handle of [first, ...others]) assert.equal((await handle.wait()).stdout, want)
    })
    test('a grandchild that holds the output does not delay the end', async (t) => {
      const dir = scratch(t)
      await assert.rejects(sbx.commands.run(`sleep 300 & echo $! > ${dir}/pid; exit 5`), (err) => err.exitCode === 5)
      const pid = Number(await sbx.files.read(`${dir}/pid`))
      assert.ok(await alive(sbx, pid), 'the grandchild must go on')
      await sbx.commands.run(`kill -9 ${pid}`)
    })
  })

  describe('stdin', () => {
    test('sendStdin and closeStdin reach the command', async () => {
      const handle = await sbx.commands.run('cat; echo end', { background: true, stdin: true })
      await handle.sendStdin('héllo\n')
      await sbx.commands.sendStdin(handle.pid, new Uint8Array([98, 121, 101, 10]))
      await until('the echo', () => handle.stdout === 'héllo\nbye\n')
      await handle.closeStdin()
      assert.equal((await handle.wait()).stdout, 'héllo\nbye\nend\n')
    })
    test('closing twice is no error', async () => {
      const handle = await sbx.commands.run('cat; sleep 60', { background: true, stdin: true })
      await handle.closeStdin()
      await sbx.commands.closeStdin(handle.pid)
      assert.equal(await handle.kill(), true)
    })
    test('8 MiB go in whole', async () => {
      const handle = await sbx.commands.run('sha256sum', { background: true, stdin: true })
      const { createHash, randomBytes } = await import('node:crypto')
      const hash = createHash('sha256')
      for (let i = 0; i < 8; i++) {
        const data = randomBytes(1 << 20)
        hash.update(data)
        await handle.sendStdin(data)
      }
      await handle.closeStdin()
      assert.equal((await handle.wait()).stdout, `${hash.digest('hex')}  -\n`)
    })
    test('input to a command without stdin is refused', async () => {
      const handle = await sbx.commands.run('sleep 60', { background: true })
      await assert.rejects(handle.sendStdin('x'), /stdin not enabled or closed/)
      assert.equal(await handle.kill(), true)
    })
    test('input to a process that is gone is not found', async () => {
      await assert.rejects(sbx.commands.sendStdin(4_000_000, 'x'), NotFoundError)
    })
  })

  describe('timeouts', () => {
    test('a command that takes longer than its timeout is ended', async (t) => {
      const dir = scratch(t)
      await inTime(1500, async (timeoutMs) => {
        await assert.rejects(sbx.commands.run(`echo $$ > ${dir}/pid; exec sleep 60`, { timeoutMs }), TimeoutError)
        return existsSync(`${dir}/pid`)
      })
      const pid = Number(await sbx.files.read(`${dir}/pid`))
      await until('the process is gone', async () => !(await alive(sbx, pid)))
    })
    test('the timeout of a connection ends the connection only', async () => {
      const handle = await sbx.commands.run('sleep 60', { background: true, timeoutMs: 0 })
      await inTime(500, async (timeoutMs) => {
        const second = await begun(sbx.commands.connect(handle.pid, { timeoutMs }))
        if (second) await assert.rejects(second.wait(), TimeoutError)
        return second
      })
      assert.ok(await alive(sbx, handle.pid))
      assert.equal(await handle.kill(), true)
    })
    test('timeout 0 sets no limit', async () => {
      assert.equal((await sbx.commands.run('sleep 0.3; echo done', { timeoutMs: 0 })).stdout, 'done\n')
    })
  })

  test('one user may see and end the processes of another, as with the original', async () => {
    const handle = await sbx.commands.run('sleep 60', { background: true, user: other })
    assert.ok((await sbx.commands.list()).some((p) => p.pid === handle.pid))
    assert.equal(await sbx.commands.kill(handle.pid), true)
  })
})

test('isRunning is true', async () => {
  assert.equal(await (await sandbox()).isRunning(), true)
})
