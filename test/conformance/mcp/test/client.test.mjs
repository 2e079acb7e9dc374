import assert from 'node:assert/strict'
import { test } from 'node:test'
import { call, doors, kill, open } from './door.mjs'

for (const door of Object.keys(doors)) {
  test(`${door}: tools are listed and run`, async (t) => {
    const client = await open(t, door)
    assert.equal(client.getServerVersion().name, 'tend')
    const { tools } = await client.listTools()
    assert.deepEqual(tools.map((t) => t.name).sort(), ['edit_file', 'find_files', 'input', 'list', 'output', 'read_file', 'run', 'run_code', 'sandbox', 'service', 'stop', 'wait', 'write_file'])
    const { text, facts } = await call(client, 'run', { command: 'echo out; echo err >&2; exit 3' })
    assert.match(text, /exited with code 3 after .*\nstdout 0 to 4:\nout\nstderr 0 to 4:\nerr\n/)
    assert.equal(facts.exit.code, 3)
    const log = await client.readResource({ uri: `tend://process/${facts.id}/stderr` })
    assert.equal(log.contents[0].text, 'err\n')
    await assert.rejects(call(client, 'run', { command: 'x', stdin: 'all' }), /stdin is "all"; none, pipe or tty are allowed/)
    await assert.rejects(call(client, 'output', { id: 'nobody' }), /there is no process "nobody"/)
  })

  test(`${door}: progress is told, and a cancelled run is killed`, async (t) => {
    const client = await open(t, door)
    const told = []
    let going
    const onprogress = (p) => {
      told.push(p.message)
      if (p.message.includes('stdout 3 bytes')) going ??= call(client, 'input', { id: `told-${door}`, text: 'go\n' })
    }
    // It ends only once its progress has been told.
    await call(client, 'run', { command: 'echo hi; read go', stdin: 'pipe', match: 'never', name: `told-${door}`, timeout_s: 600 }, { onprogress })
    await going
    assert.ok(going, told.join('\n'))
    const stop = new AbortController()
    const name = `cancelled-${door}`
    const running = call(client, 'run', { command: 'sleep 1000 & wait', name, timeout_s: 600 }, { signal: stop.signal })
    while (!(await call(client, 'list')).text.includes(name)) await new Promise((r) => setTimeout(r, 20))
    stop.abort()
    await assert.rejects(running)
    const { text } = await call(client, 'wait', { id: name })
    assert.match(text, /was ended by SIGKILL, as it was told to/)
  })

  test(`${door}: a call that is under way while roles are killed is answered once and whole`, async (t) => {
    const client = await open(t, door)
    for (const [i, role] of ['server', 'keeper', 'server', 'anchor'].entries()) {
      const name = `kills-${door}-${i}`
      const running = call(client, 'run', { command: 'echo begun; read go; seq 1 2000; exit 7', stdin: 'pipe', match: 'never', name, max_tokens: 50_000, timeout_s: 600 })
      for (;;) {
        const found = await call(client, 'wait', { id: name, match: 'begun' }).catch(() => undefined)
        if (found) break
        await new Promise((r) => setTimeout(r, 20))
      }
      kill(role)
      // A POST that breaks before its answer begins is the client's to repeat: this one does not.
      while (door === 'HTTP' && !(await client.ping().catch(() => undefined))) await new Promise((r) => setTimeout(r, 20))
      const [{ text }] = await Promise.all([running, call(client, 'input', { id: name, text: 'go\n' })])
      assert.match(text, /exited with code 7/)
      const want = `begun\n${Array.from({ length: 2000 }, (_, i) => i + 1).join('\n')}\n`
      assert.equal(text.slice(text.indexOf(':\n') + 2), want)
    }
  })
}
