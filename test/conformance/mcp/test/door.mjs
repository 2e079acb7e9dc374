import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { execFileSync } from 'node:child_process'

/** The two ways to tend's tools. */
export const doors = {
  HTTP: () => new StreamableHTTPClientTransport(new URL(`${process.env.TEND_URL}/mcp`)),
  stdio: (cwd) => new StdioClientTransport({ command: process.env.TEND_BIN, args: ['mcp', '--url', process.env.TEND_URL], cwd, stderr: 'inherit' }),
}

export async function open(t, door, cwd) {
  const client = new Client({ name: 'conformance', version: '1' })
  await client.connect(doors[door](cwd))
  t.after(() => client.close())
  return client
}

/** Calls a tool and returns its text and facts. */
export async function call(client, name, args = {}, options = {}) {
  const res = await client.callTool({ name, arguments: args }, undefined, { timeout: 300_000, ...options })
  const text = res.content.map((c) => c.text).join('')
  if (res.isError) throw new Error(text)
  return { text, facts: res._meta?.tend }
}

export const kill = (role) => execFileSync(process.env.KILL_ROLE, [role])
