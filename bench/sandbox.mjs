// Times what the user of E2B's SDK waits for: a new sandbox, and the first output of a command in it. It runs
// where the suite of that SDK is installed, and prints one line of JSON, in milliseconds: sandbox.mjs ROUNDS
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const { Sandbox } = await import(pathToFileURL(createRequire(process.cwd() + '/').resolve('e2b')).href)
const warm = 3
const rounds = Number(process.argv[2])
const took = { create: [], first: [], whole: [] }
for (let i = 0; i < rounds + warm; i++) {
  await new Promise((done) => setTimeout(done, 60)) // as in the bench sandbox-create
  const begin = performance.now()
  const sandbox = await Sandbox.create({ timeoutMs: 60_000 })
  const made = performance.now()
  let first
  const { stdout } = await sandbox.commands.run('echo x', { onStdout: () => (first ??= performance.now()) })
  const end = performance.now()
  if (stdout !== 'x\n') throw new Error(`echo wrote ${JSON.stringify(stdout)}`)
  await sandbox.kill()
  if (i < warm) continue
  took.create.push(made - begin)
  took.first.push(first - begin)
  took.whole.push(end - begin)
}
console.log(JSON.stringify(took))
process.exit(0) // its connections are kept alive
