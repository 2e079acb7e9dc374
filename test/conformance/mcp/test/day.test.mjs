import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { open } from './door.mjs'

async function freePort() {
  const s = createServer().listen(0, '127.0.0.1')
  await once(s, 'listening')
  const { port } = s.address()
  s.close()
  await once(s, 'close')
  return port
}

/** Starts the scripted model, and returns its URL and how to end it. */
async function model(t, vars) {
  const args = ['-script', new URL('day.json', import.meta.url).pathname, '-key', 'sk-day']
  for (const [k, v] of Object.entries(vars)) args.push('-var', `${k}=${v}`)
  const child = spawn(process.env.FAKELLM_BIN, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => child.kill('SIGKILL'))
  const [line] = await once(child.stdout.setEncoding('utf8'), 'data')
  return {
    url: line.trim(),
    end: async () => {
      child.kill('SIGTERM')
      const [code] = await once(child, 'exit')
      return code
    },
  }
}

test('an agent does a day of work by MCP alone', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'day-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const llm = await model(t, { DIR: dir, PORT: String(await freePort()) })
  const client = await open(t, 'stdio', dir)
  const { tools } = await client.listTools()
  const messages = [{ role: 'user', content: 'Please make words count in lines, with a test. Try it in a REPL, serve it, and clean up.' }]
  for (let turn = 0; ; turn++) {
    assert.ok(turn < 30, 'the model does not come to an end')
    const res = await fetch(`${llm.url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': 'sk-day', 'anthropic-version': '2023-06-01' },
      body: JSON.stringify({ model: 'scripted', max_tokens: 1000, messages, tools: tools.map((t) => ({ name: t.name, description: t.description, input_schema: t.inputSchema })) }),
    })
    const reply = await res.json()
    assert.equal(res.status, 200, `turn ${turn}: ${JSON.stringify(reply)}\nafter ${JSON.stringify(messages.at(-1))}`)
    messages.push({ role: 'assistant', content: reply.content })
    const calls = reply.content.filter((c) => c.type === 'tool_use')
    if (calls.length === 0) break
    const results = []
    for (const c of calls) {
      const got = await client.callTool({ name: c.name, arguments: c.input })
      results.push({ type: 'tool_result', tool_use_id: c.id, content: got.content, is_error: got.isError ?? false })
    }
    messages.push({ role: 'user', content: results })
  }
  const state = await (await fetch(`${llm.url}/__state`)).json()
  assert.equal(state.turns_left, 0, JSON.stringify(state))
  assert.equal(await llm.end(), 0)
  assert.match(readFileSync(join(dir, 'words.py'), 'utf8'), /text\.split\(\)/)
  assert.ok(!existsSync(join(dir, '__pycache__')))
})
