// Measures as computesdk's public benchmark of sandbox providers does, with its npm client: the time from the call of create to the
// end of a first command, one at a time, one every 200 ms, and all at once. It runs where test/conformance/agents has that client, and
// does what the lines on stdin say: sequential N, staggered N, burst N. Each is answered with a line of JSON, in milliseconds:
// {tti: [...], failed, first, wall}
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const load = (name) => import(pathToFileURL(createRequire(`${process.argv[2]}/`).resolve(name)).href)
const { compute } = await load('computesdk')
const { e2b } = await load('@computesdk/e2b')
compute.setConfig({ provider: e2b({ apiKey: process.env.E2B_API_KEY }) })

const patience = 120_000 // a sandbox that takes longer has failed
const stagger = 200

const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

/** Makes a sandbox and ends it. What it took to make it and to run a command in it: {tti, at}. */
async function one() {
  let late
  const begin = performance.now()
  const expired = new Promise((_, reject) => {
    late = setTimeout(() => reject(new Error('not within two minutes')), patience)
  })
  const ready = (async () => {
    const sandbox = await compute.sandbox.create()
    const { exitCode, stdout, stderr } = await sandbox.runCommand('echo benchmark')
    const at = performance.now()
    if (exitCode !== 0 || stdout !== 'benchmark\n') throw new Error(`the command ended with ${exitCode}: ${stdout}${stderr}`)
    return { sandbox, at }
  })()
  try {
    const { sandbox, at } = await Promise.race([ready, expired])
    return { tti: at - begin, at, sandbox }
  } finally {
    clearTimeout(late)
  }
}

const modes = {
  sequential: async (n) => {
    const all = []
    for (let i = 0; i < n; i++) {
      all.push(...(await Promise.allSettled([one()])))
      await all.at(-1).value?.sandbox.destroy()
    }
    return all
  },
  staggered: (n) => Promise.allSettled(Array.from({ length: n }, (_, i) => sleep(i * stagger).then(one))),
  burst: (n) => Promise.allSettled(Array.from({ length: n }, one)),
}

for await (const line of createInterface({ input: process.stdin })) {
  const [mode, n] = line.split(' ')
  const begin = performance.now()
  const all = await modes[mode](Number(n))
  const good = all.filter((r) => r.status === 'fulfilled').map((r) => r.value)
  for (const r of all) if (r.status === 'rejected') console.error(`${mode}: ${r.reason?.message ?? r.reason}`)
  if (mode !== 'sequential') await Promise.all(good.map((r) => r.sandbox.destroy()))
  const at = good.map((r) => r.at - begin)
  console.log(JSON.stringify({ tti: good.map((r) => r.tti), failed: all.length - good.length, first: Math.min(...at), wall: Math.max(...at) }))
}
process.exit(0) // its connections are kept alive
