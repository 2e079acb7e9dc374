// Times what the user of a client in JavaScript waits for, by tend's or by E2B's; as clients.py: clients.mjs tend|e2b DIR
// DIR has the package, or what it is built into.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

// What E2B's SDK makes of a command, so that both start the same program.
const login = (command) => ['/bin/bash', '-l', '-c', command]
// What the shell reads there takes longer than all else, and is not meant.
const env = { HOME: '/nonexistent' }
const load = (name) => import(pathToFileURL(createRequire(`${process.argv[3]}/`).resolve(name)).href)

async function tendClient() {
  const { Client } = await load('@tend/client')
  const client = await Client.connect()
  return {
    run: async () => (await client.run({ argv: login('true'), env })).exitCode,
    output: async (command) => {
      let got = 0
      const process = await client.start({ argv: login(command) })
      for await (const event of process.read()) if (event.kind === 'output') got += event.data.length
      return got
    },
  }
}

async function e2bClient() {
  const { Sandbox } = await load('e2b')
  const sandbox = await Sandbox.create()
  return {
    run: async () => (await sandbox.commands.run('true', { envs: env })).exitCode,
    output: async (command) => {
      let got = 0
      await sandbox.commands.run(command, { onStdout: (text) => void (got += text.length), timeoutMs: 0 })
      return got
    },
  }
}

const client = await { tend: tendClient, e2b: e2bClient }[process.argv[2]]()
for await (const line of createInterface({ input: process.stdin })) {
  const [what, n] = line.split(' ')
  let answer
  if (what === 'run') {
    answer = []
    for (let i = 0; i < Number(n); i++) {
      const begin = performance.now()
      if ((await client.run()) !== 0) throw new Error('true failed')
      answer.push(performance.now() - begin)
    }
  } else {
    const begin = performance.now()
    const got = await client.output(`yes 0123456789abcde | head -c ${n}`)
    if (got !== Number(n)) throw new Error(`${got} bytes of ${n} came`)
    answer = Number(n) / (1 << 20) / ((performance.now() - begin) / 1000)
  }
  console.log(JSON.stringify(answer))
}
process.exit(0) // its connections are kept alive
