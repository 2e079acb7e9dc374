// The engine of JavaScript and TypeScript: it runs cells as scripts of one global scope. See host.py.
// A cell may import, await at its top level, and declare again what an earlier cell has declared.
'use strict'
const acorn = require('internal/deps/acorn/acorn/dist/acorn')
const { processTopLevelAwait } = require('internal/repl/await')
const { startSigintWatchdog, stopSigintWatchdog } = require('internal/test/binding').internalBinding('contextify')
const fs = require('node:fs')
const module_ = require('node:module')
const path = require('node:path')
const readline = require('node:readline')
const util = require('node:util')
const vm = require('node:vm')

const CELLS = 98
const EVENTS = 99
const typescript = process.argv[2] === 'typescript'
process.execArgv.length = 0 // of programs that cells fork

function say(event) {
  let data = Buffer.from(JSON.stringify(event) + '\n')
  while (data.length > 0) data = data.subarray(fs.writeSync(EVENTS, data))
}

// asScript is the cell as a script. Its declarations are of the global scope, whatever their kind.
function asScript(code) {
  if (typescript) code = module_.stripTypeScriptTypes(code, { mode: 'transform' })
  const parse = (text) => acorn.parse(text, { ecmaVersion: 'latest', sourceType: 'module', allowAwaitOutsideFunction: true })
  let tree
  if (/^\s*\{/.test(code) && !/;\s*$/.test(code)) {
    try {
      tree = parse(`(${code}\n)`) // an object, not a block
      code = `(${code}\n)`
    } catch {}
  }
  try {
    tree ??= parse(code)
  } catch {
    return { text: code } // a script that is no module, or an error, which node words better
  }
  let text = ''
  let at = 0
  const replace = (from, to, by) => {
    text += code.slice(at, from) + by
    at = to
  }
  for (let node of tree.body) {
    if (node.type === 'ExportDefaultDeclaration') replace(node.start, node.declaration.start, '')
    if (node.type === 'ExportNamedDeclaration') {
      if (!node.declaration) replace(node.start, node.end, '')
      else replace(node.start, node.declaration.start, '')
    }
    node = node.declaration ?? node
    if (node.type === 'ImportDeclaration') replace(node.start, node.end, imported(node))
    else if (node.type === 'VariableDeclaration' && (node.kind === 'const' || node.kind === 'let')) {
      replace(node.start, node.start + node.kind.length, 'var')
    } else if (node.type === 'ClassDeclaration' && node.id) {
      replace(node.start, node.start, `var ${node.id.name} = `)
      replace(node.end, node.end, ';')
    }
  }
  text += code.slice(at)
  const awaits = processTopLevelAwait(text)
  return awaits === null ? { text } : { text: awaits, awaits: true }
}

function imported(node) {
  const named = []
  let whole = ''
  for (const s of node.specifiers) {
    if (s.type === 'ImportNamespaceSpecifier') whole = s.local.name
    else named.push(`${s.type === 'ImportDefaultSpecifier' ? 'default' : s.imported.name ?? s.imported.raw}: ${s.local.name}`)
  }
  const from = `await import(${node.source.raw})`
  if (whole && named.length > 0) return `var ${whole} = ${from}; var { ${named.join(', ')} } = ${whole};`
  if (whole) return `var ${whole} = ${from};`
  return named.length > 0 ? `var { ${named.join(', ')} } = ${from};` : `${from};`
}

// result says what a value becomes: its own pictures, if it has methods for them, and its text.
function result(value, main) {
  let text = util.inspect(value)
  if (typeof value === 'string') text = text.slice(1, -1)
  const event = { type: 'result', text }
  const fields = { html: '_toHtml', svg: '_toSvg', png: '_toPng', jpeg: '_toJpeg' }
  for (const [field, method] of Object.entries(fields)) {
    if (value !== null && typeof value === 'object' && typeof value[method] === 'function') event[field] = String(value[method]())
  }
  if (Array.isArray(value) || (value && typeof value === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(value)))) {
    try {
      event.json = JSON.parse(JSON.stringify(value))
    } catch {} // it refers to itself, or has a bigint: the text says what it is
  }
  say({ ...event, extra: {}, is_main_result: main })
}

const fieldOf = {
  'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg', 'image/png': 'png', 'image/jpeg': 'jpeg',
  'application/pdf': 'pdf', 'text/latex': 'latex', 'application/json': 'json', 'application/javascript': 'javascript',
}

function mime(bundle) {
  const event = { type: 'result' }
  const extra = {}
  for (const [kind, value] of Object.entries(bundle)) {
    if (fieldOf[kind]) event[fieldOf[kind]] = value
    else extra[kind] = value
  }
  say({ ...event, extra, is_main_result: false })
}

globalThis.display = (value) => result(value, false)
globalThis.$$ = {
  mime,
  html: (v) => mime({ 'text/html': v }),
  svg: (v) => mime({ 'image/svg+xml': v }),
  png: (v) => mime({ 'image/png': v }),
  jpeg: (v) => mime({ 'image/jpeg': v }),
}
globalThis.require = module_.createRequire(path.join(process.cwd(), 'cells.js'))

// Deliberately no listener of SIGINT: node takes it away while a script runs, and before and after that an interrupt would end
// the process. This watchdog stays; it ends scripts by itself.
startSigintWatchdog()

function interrupted() {
  startSigintWatchdog() // it counts
  return stopSigintWatchdog() // whether there was one while no script ran
}

// settled waits for the promise, or an interrupt.
const { clearInterval: stop, setInterval: repeat } = globalThis // cells may have their own
async function settled(promise) {
  let asks
  const broken = new Promise((_, reject) => {
    asks = repeat(() => interrupted() && reject({ code: 'ERR_SCRIPT_EXECUTION_INTERRUPTED' }), 20)
  })
  try {
    return await Promise.race([promise, broken])
  } finally {
    stop(asks)
  }
}

const ownFrames = /\n    at (sigintHandlersWrap|Script\.runInThisContext|new Script) [^]*/

function failure(err) {
  if (err?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') return { name: 'KeyboardInterrupt', value: 'the cell was interrupted', traceback: '' }
  if (util.types.isNativeError(err) || err instanceof Error) {
    return { name: String(err.name), value: String(err.message), traceback: String(err.stack).replace(ownFrames, '') }
  }
  return { name: 'Error', value: util.inspect(err), traceback: `Uncaught ${util.inspect(err)}` }
}

let count = 0
async function run({ code, env }) {
  count++
  const before = Object.fromEntries(Object.keys(env).map((k) => [k, process.env[k]]))
  Object.assign(process.env, env)
  interrupted() // it was of the cell before
  try {
    const { text, awaits } = asScript(code)
    const importModuleDynamically = vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER
    const script = new vm.Script(text, { filename: `cell ${count}`, importModuleDynamically })
    let value = script.runInThisContext({ breakOnSigint: true, displayErrors: false })
    if (util.types.isPromise(value)) value = await settled(value)
    if (awaits) value = value?.value
    if (util.types.isPromise(value)) value = await settled(value)
    if (value !== undefined) result(value, true)
  } catch (err) {
    say({ type: 'error', ...failure(err) })
  }
  for (const [k, v] of Object.entries(before)) {
    if (v === undefined) delete process.env[k]
    else process.env[k] = v
  }
  say({ type: 'done' })
}

for (const kind of ['uncaughtException', 'unhandledRejection']) {
  process.on(kind, (err) => fs.writeSync(2, `Uncaught ${util.inspect(err)}\n`))
}
const lines = readline.createInterface({ input: fs.createReadStream(null, { fd: CELLS }), crlfDelay: Infinity })
lines.on('line', (line) => run(JSON.parse(line)))
lines.on('close', () => process.exit())
say({ type: 'ready' })
