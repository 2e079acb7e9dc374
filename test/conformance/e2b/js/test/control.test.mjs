// The control plane: sandboxes that the SDKs make, find and end, in both generations of its routes. npm e2b 2.51
// creates at /v2/sandboxes, 2.45 at /sandboxes.
import { test, describe, before, after } from 'node:test'
import assert from 'node:assert/strict'
import http from 'node:http'
import net from 'node:net'
import { existsSync, rmSync } from 'node:fs'
import { makeSandboxes, until, url } from '../helpers.mjs'

makeSandboxes()
const nobody = '00000000-0000-4000-8000-000000000000'

/** What a path of the server answers, without an SDK. */
const ask = (path, headers = {}, options = {}) =>
  new Promise((resolve, reject) => {
    const req = http.request(url + path, { headers, ...options }, async (res) => {
      let text = ''
      for await (const part of res) text += part
      resolve({ status: res.statusCode, text, headers: res.headers })
    })
    req.on('error', reject)
    req.end(options.body)
  })

/** A port that nobody has: a sandbox may have the machine's network. */
const freePort = () =>
  new Promise((resolve) => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })

for (const generation of ['e2b', 'e2b-v1']) {
  const { Sandbox, Template, Secret, SandboxNotFoundError, NotFoundError } = await import(generation)
  const tag = `${generation}-${process.pid}-${Date.now()}`
  const made = []
  const create = async (opts = {}, template = 'base') => {
    const sbx = await Sandbox.create(template, { timeoutMs: 300_000, ...opts, metadata: { tag, ...opts.metadata } })
    made.push(sbx)
    return sbx
  }

  describe(`control plane by ${generation}`, () => {
    let sbx
    before(async () => {
      sbx = await create({ metadata: { 'odd key': 'a=b&c d/ž+%' }, envs: { FROM_CREATE: '1' }, lifecycle: { onTimeout: 'pause' } })
    })
    after(async () => {
      await Promise.all(made.map((s) => s.kill().catch(() => {})))
    })

    test('a sandbox runs commands, with its variables', async () => {
      const res = await sbx.commands.run('echo "$FROM_CREATE $E2B_SANDBOX"; exit 3').catch((e) => e)
      assert.equal(res.stdout, '1 true\n')
      assert.equal(res.exitCode, 3)
      assert.equal(await sbx.isRunning(), true)
    })

    test('programs are told which sandbox theirs is, by variables and files', async () => {
      const told = async (s) => (await s.commands.run('echo "$E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID"; cd /run/e2b; cat .E2B_SANDBOX; echo -n " "; cat .E2B_SANDBOX_ID; echo -n " "; cat .E2B_TEMPLATE_ID; echo; stat -c "%a %n" .E2B_*')).stdout
      const want = (s) => `true ${s.sandboxId} base\n`.repeat(2) + '444 .E2B_SANDBOX\n666 .E2B_SANDBOX_ID\n666 .E2B_TEMPLATE_ID\n'
      assert.equal(await told(sbx), want(sbx))
      const [copy] = await sbx.fork({ timeoutMs: 60_000 })
      try {
        assert.equal(await told(copy), want(copy)) // its own, after a start of its own
        await copy.pause({ keepMemory: false })
        await copy.connect()
        assert.equal(await told(copy), want(copy))
      } finally {
        await copy.kill() // it has the metadata of the other
      }
      assert.equal((await sbx.commands.run('echo $E2B_SANDBOX_ID', { envs: { E2B_SANDBOX_ID: 'mine' } })).stdout, 'mine\n')
    })

    test('envd on localhost inside: its own sandbox with its token, and nothing else of the server', async () => {
      const other = await create()
      const token = (s) => s.envdAccessToken ?? s['envdAccessToken']
      const curl = async (path, ...args) => (await sbx.commands.run(`curl -sS -m 20 -w '\\n%{http_code}' ${args.map((a) => `'${a}'`).join(' ')} 'http://localhost:49983${path}'`)).stdout
      const status = async (...args) => +(await curl(...args)).split('\n').pop()
      assert.equal(await status('/health'), 204)
      const rpc = ['-X', 'POST', '-H', 'Content-Type: application/json', '-d', '{}']
      assert.equal(await status('/process.Process/List', ...rpc), 401)
      assert.equal(await status('/files?path=/etc/hostname'), 401)
      if (!token(sbx)) return // the older SDK keeps it
      const own = ['-H', `X-Access-Token: ${token(sbx)}`]
      await other.files.write('/home/user/whose', 'of the other')
      await sbx.files.write('/home/user/whose', 'of this one')
      assert.equal(await curl('/files?path=/home/user/whose', ...own), 'of this one\n200')
      assert.match(await curl('/envs', ...own), new RegExp(`"E2B_SANDBOX_ID":"${sbx.sandboxId}"`))
      // Whoever it names, it is its own that answers.
      for (const name of ['E2b-Sandbox-Id: ' + other.sandboxId, `Host: 49983-${other.sandboxId}.localhost`, 'E2b-Sandbox-Id: debug_sandbox_id', 'Host: 3000-' + other.sandboxId + '.localhost']) {
        assert.equal(await curl('/files?path=/home/user/whose', ...own, '-H', name), 'of this one\n200', name)
        assert.equal(await status('/files?path=/home/user/whose', '-H', `X-Access-Token: ${token(other)}`, '-H', name), 401, name)
      }
      const key = ['-H', 'X-API-Key: e2b_0000000000000000000000000000000000000000']
      for (const path of ['/v2/sandboxes', '/sandboxes', '/-/metrics', '/-/healthz', '/ui/', '/mcp', '/tend.v1.ProcessService/List', '/templates', '/api/gateway/', '/langsmith/', '/', '//v2/sandboxes', '/files/../v2/sandboxes', '/%2e%2e/v2/sandboxes'])
        for (const host of ['localhost', `api.${other.sandboxId}`, '127.0.0.1:49983']) assert.ok([301, 307, 404].includes(await status(path, ...own, ...key, '--path-as-is', '-H', `Host: ${host}`)), path)
      assert.equal(await status('/init', '-X', 'POST', '-d', '{}', ...own), 400)
      assert.equal(await status('/health', '--http2-prior-knowledge').catch(() => 0), 0) // one request at a time on a connection
      // Many connections take nobody's place outside, and their end gives it back.
      await sbx.commands.run(`python3 -c 'import socket; c=[socket.create_connection(("127.0.0.1",49983)) for _ in range(400)]; import time; time.sleep(1)'`).catch(() => {})
      assert.equal((await sbx.commands.run('echo still here')).stdout, 'still here\n')
      await until('there is a place again', async () => (await status('/health').catch(() => 0)) === 204)
      await sbx.pause()
      await sbx.connect()
      assert.equal(await status('/health'), 204)
    })

    test('two sandboxes do not see each other', async () => {
      const other = await create()
      assert.notEqual(other.sandboxId, sbx.sandboxId)
      const h = await sbx.commands.run('sleep 300', { background: true, timeoutMs: 0 })
      assert.ok((await sbx.commands.list()).some((p) => p.pid === h.pid))
      assert.ok(!(await other.commands.list()).some((p) => p.args.join(' ').includes('sleep 300')))
      assert.equal(await h.kill(), true)
      const path = `/tmp/tend-control-${tag}`
      await other.files.write(path, 'of the other')
      assert.equal(await other.files.read(path), 'of the other')
      assert.equal(existsSync(path), false, 'the file of a sandbox is on this machine')
      assert.equal(await sbx.files.exists(path), false)
    })

    test('getInfo', async () => {
      const i = await sbx.getInfo()
      assert.equal(i.sandboxId, sbx.sandboxId)
      assert.equal(i.templateId, 'base')
      assert.equal(i.state, 'running')
      assert.deepEqual(i.metadata, { tag, 'odd key': 'a=b&c d/ž+%' })
      const left = +i.endAt - Date.now()
      assert.ok(left > 10_000 && left < 301_000, `endAt in ${left} ms`)
      assert.ok(+i.startedAt <= Date.now() && i.cpuCount > 0 && i.memoryMB > 0)
      assert.equal(i.lifecycle.onTimeout, 'pause')
    })

    test('lists by metadata and state, in pages', async () => {
      const find = async (query) => (await Sandbox.list({ query }).nextItems()).map((s) => s.sandboxId)
      assert.deepEqual(await find({ metadata: { tag, 'odd key': 'a=b&c d/ž+%' }, state: ['running', 'paused'] }), [sbx.sandboxId])
      assert.deepEqual(await find({ metadata: { tag: 'another' } }), [])
      assert.deepEqual(await find({ metadata: { tag }, state: ['paused'] }), [])
      await create()
      await create()
      const paginator = Sandbox.list({ limit: 2, query: { metadata: { tag } } })
      const ids = []
      while (paginator.hasNext) ids.push(...(await paginator.nextItems()).map((s) => s.sandboxId))
      assert.deepEqual(ids.sort(), made.map((s) => s.sandboxId).sort())
    })

    test('setTimeout extends and shortens; connect only extends', async () => {
      const left = async () => +(await sbx.getInfo()).endAt - Date.now()
      await sbx.setTimeout(600_000)
      assert.ok((await left()) > 500_000)
      const same = await Sandbox.connect(sbx.sandboxId, { timeoutMs: 30_000 })
      assert.equal((await same.commands.run('echo same')).stdout, 'same\n')
      assert.ok((await left()) > 400_000)
      await sbx.setTimeout(300_000)
      assert.ok((await left()) < 301_000)
    })

    test('a sandbox is used with its own token alone', async () => {
      const body = JSON.stringify({})
      const list = (headers) => ask('/process.Process/List', { 'Content-Type': 'application/json', 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983', ...headers }, { method: 'POST', body })
      const other = await create()
      assert.equal((await list({})).status, 401)
      assert.equal((await list({ 'X-Access-Token': 'x' })).status, 401)
      const token = (s) => s.envdAccessToken ?? s['envdAccessToken']
      if (token(other)) assert.equal((await list({ 'X-Access-Token': token(other) })).status, 401)
      assert.equal((await ask('/health', { 'E2b-Sandbox-Id': sbx.sandboxId })).status, 204)
    })

    test('signed URLs, which are opened without a header', async () => {
      await sbx.files.write('signed.txt', 'by a link')
      const get = async (link) => {
        const res = await fetch(link)
        return [res.status, await res.text()]
      }
      const link = await sbx.downloadUrl('signed.txt', { useSignatureExpiration: 60_000 })
      assert.deepEqual(await get(link), [200, 'by a link'])
      assert.deepEqual(await get(await sbx.downloadUrl('signed.txt')), [200, 'by a link'])
      assert.equal((await get(link.replace('signed.txt', 'other.txt')))[0], 401)
      const form = new FormData()
      form.append('file', new Blob(['sent']), 'sent.txt')
      const res = await fetch(await sbx.uploadUrl('sent.txt'), { method: 'POST', body: form })
      assert.equal(res.status, 200, await res.text())
      assert.equal(await sbx.files.read('sent.txt'), 'sent')
    })

    test('ports: a program inside is reached, and a closed port says so', async () => {
      const port = await freePort()
      const script = `import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n  def do_GET(s):\n    s.send_response(200); s.end_headers(); s.wfile.write(("inside " + s.headers["Host"] + s.path).encode())\n  def log_message(s, *a): pass\nhttp.server.HTTPServer(("127.0.0.1", ${port}), H).serve_forever()`
      await sbx.files.write('server.py', script)
      const h = await sbx.commands.run('exec python3 server.py', { background: true, timeoutMs: 0 })
      const by = { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': `${port}` }
      await until('the program listens', async () => (await ask('/', by)).status === 200)
      assert.match((await ask('/a?b=c', by)).text, /^inside .*\/a\?b=c$/)
      const host = sbx.getHost(port)
      assert.equal(host, `${port}-${sbx.sandboxId}.${process.env.E2B_DOMAIN ?? `localhost:${new URL(url).port}`}`)
      assert.equal((await ask('/x', { Host: host })).text, `inside ${host}/x`)
      assert.equal((await ask('/health', { Host: sbx.getHost(49983) })).status, 204)
      assert.equal((await ask('/v2/sandboxes', { Host: sbx.getHost(49983) })).status, 404)
      await h.kill()
      const closed = await until('the port is closed', async () => {
        const res = await ask('/', by)
        return res.status === 502 && !res.text.includes('ended the connection') && res // it was, in the middle of this request
      })
      // E2B's own tests, and clients, take what stands before the first hyphen for the ID.
      assert.deepEqual(JSON.parse(closed.text), { sandboxId: sbx.sandboxId.split('-')[0], message: 'The sandbox is running but port is not open', port, code: 502 })
    })

    test('a WebSocket by the name of getHost', async () => {
      const port = await freePort()
      const script = `import socket\nl = socket.create_server(("127.0.0.1", ${port}))\nwhile True:\n  c, _ = l.accept()\n  head = b""\n  while not head.endswith(b"\\r\\n\\r\\n"):\n    b = c.recv(1)\n    if not b: break\n    head += b\n  if b"upgrade: websocket" not in head.lower():\n    c.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n"); c.close(); continue\n  c.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\nhello ")\n  while (d := c.recv(4096)): c.sendall(d)\n  c.close()`
      await sbx.files.write('ws.py', script)
      const h = await sbx.commands.run('exec python3 ws.py', { background: true, timeoutMs: 0 })
      await until('the program listens', async () => (await ask('/', { Host: sbx.getHost(port) })).status === 200)
      const headers = { Host: sbx.getHost(port), Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==' }
      const socket = await new Promise((resolve, reject) => http.request(`${url}/chat`, { headers }).on('upgrade', (res, s, head) => resolve(Object.assign(s, { head }))).on('response', (res) => reject(new Error(`status ${res.statusCode}`))).on('error', reject).end())
      let got = socket.head.toString()
      socket.on('data', (d) => (got += d))
      socket.write('back and ')
      socket.write('forth')
      await until('it comes back', () => got === 'hello back and forth')
      socket.destroy()
      await h.kill()
    })

    test('secure, and pause by its older name', async () => {
      const own = await create({ secure: true })
      assert.equal(await (own.betaPause ?? own.pause).call(own), true)
      const again = await own.connect({ timeoutMs: 60_000 })
      assert.equal((await again.commands.run('echo back')).stdout, 'back\n')
      const paused = await Sandbox.list({ query: { metadata: { tag }, state: ['paused'] } }).nextItems()
      assert.ok(!paused.some((s) => s.sandboxId === own.sandboxId))
    })

    test('pause and connect: processes stand still and go on', async () => {
      const h = await sbx.commands.run('n=0; while sleep 0.05; do n=$((n+1)); echo $n > next; mv next count; done', { background: true, timeoutMs: 0 })
      await until('it counts', async () => (await sbx.files.exists('count')) && Number(await sbx.files.read('count')) > 1)
      assert.equal(await sbx.pause(), true)
      assert.equal((await Sandbox.getInfo(sbx.sandboxId)).state, 'paused')
      assert.equal(await sbx.pause(), false)
      assert.equal(await sbx.isRunning(), false)
      await assert.rejects(sbx.commands.run('true'))
      const again = await Sandbox.connect(sbx.sandboxId, { timeoutMs: 120_000 })
      assert.equal((await again.getInfo()).state, 'running')
      assert.ok((await again.commands.list()).some((p) => p.pid === h.pid))
      const was = Number(await again.files.read('count'))
      await until('it counts on', async () => Number(await again.files.read('count')) > was)
      await again.commands.kill(h.pid)
    })

    test('autoResume: traffic wakes a sandbox whose time was up', async () => {
      const auto = await create({ timeoutMs: 1_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
      await until('it is paused', async () => (await Sandbox.getInfo(auto.sandboxId)).state === 'paused')
      assert.equal((await auto.commands.run('echo awake')).stdout, 'awake\n')
      assert.equal((await auto.getInfo()).state, 'running')
    })

    test('a pause at its time can keep the files alone', async () => {
      const auto = await create({ timeoutMs: 60_000, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
      await auto.files.write('kept', 'files')
      const h = await auto.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
      await auto.setTimeout(0)
      await until('it is paused', async () => (await Sandbox.getInfo(auto.sandboxId)).state === 'paused')
      const again = await auto.connect({ timeoutMs: 60_000 })
      assert.equal(await again.files.read('kept'), 'files')
      assert.ok(!(await again.commands.list()).some((p) => p.pid === h.pid && p.cmd.includes('sleep')), 'a process outlived it')
    })

    test('what runs when a sandbox is killed says so', async () => {
      const doomed = await create()
      const h = await doomed.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
      const end = assert.rejects(h.wait(), /killed or reached its end of life/)
      await doomed.kill()
      await end
    })

    test('servers of models are started by the SDK, in the sandbox', async () => {
      const mine = { gateway: `${tag}-gateway` }
      await assert.rejects(Sandbox.create('base', { timeoutMs: 60_000, metadata: mine, mcp: { anything: {} } }), /mcp-gateway|MCP gateway|command not found|exit/i)
      for (const left of await Sandbox.list({ query: { metadata: mine } }).nextItems()) await Sandbox.kill(left.sandboxId) // an older SDK leaves it
    })

    test('a browser sees a page where a port is closed', async () => {
      const port = await freePort()
      const res = await ask('/', { Host: sbx.getHost(port), 'User-Agent': 'Mozilla/5.0 (X11; Linux x86_64)' })
      assert.equal(res.status, 502)
      assert.match(res.text, /<title>Closed Port Error<\/title>/)
    })

    test('programs see the host name that the creation gave', async () => {
      const port = await freePort()
      const masked = await create({ network: { maskRequestHost: 'own.example:${PORT}' } })
      await masked.files.write('server.py', `import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n  def do_GET(s):\n    s.send_response(200); s.end_headers(); s.wfile.write(s.headers["Host"].encode())\n  def log_message(s, *a): pass\nhttp.server.HTTPServer(("127.0.0.1", ${port}), H).serve_forever()`)
      const h = await masked.commands.run('exec python3 server.py', { background: true, timeoutMs: 0 })
      await until('the program listens', async () => (await ask('/', { Host: masked.getHost(port) })).status === 200)
      assert.equal((await ask('/', { Host: masked.getHost(port) })).text, `own.example:${port}`)
      await h.kill()
    })

    test('a sandbox ends at its time', async () => {
      const short = await create({ timeoutMs: 1_000 })
      await until('it is gone', () => Sandbox.getInfo(short.sandboxId).then(() => false, (e) => e instanceof NotFoundError))
      assert.equal(await short.isRunning(), false)
    })

    test('getMetrics', async () => {
      const metrics = await sbx.getMetrics()
      assert.ok(metrics.length > 0)
      for (const m of metrics) for (const k of ['cpuUsedPct', 'cpuCount', 'memUsed', 'memTotal', 'diskUsed', 'diskTotal']) assert.equal(typeof m[k], 'number', k)
    })

    test('a snapshot keeps files, and is a template', async () => {
      await sbx.files.write('kept.txt', 'of before')
      const snapshot = await sbx.createSnapshot({ name: `snap-${tag.toLowerCase()}` })
      await sbx.files.write('kept.txt', 'of after')
      const copy = await create({}, snapshot.snapshotId)
      assert.equal(await copy.files.read('kept.txt'), 'of before')
      assert.equal((await copy.commands.run('cat kept.txt')).stdout, 'of before')
      assert.equal(await sbx.files.read('kept.txt'), 'of after')
      const found = await Sandbox.listSnapshots({ sandboxId: sbx.sandboxId }).nextItems()
      assert.deepEqual(found.map((s) => s.snapshotId), [snapshot.snapshotId])
      await copy.kill()
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
      await assert.rejects(create({}, snapshot.snapshotId), /404.*not found/)
    })

    test('forks have the files, and are apart', async () => {
      await sbx.files.write('forked.txt', 'of both')
      const forks = await sbx.fork({ count: 2, timeoutMs: 60_000 })
      made.push(...forks)
      assert.equal(forks.length, 2)
      for (const f of forks) assert.equal(await f.files.read('forked.txt'), 'of both')
      await forks[0].files.write('forked.txt', 'of one')
      assert.equal(await forks[1].files.read('forked.txt'), 'of both')
      assert.equal(await sbx.files.read('forked.txt'), 'of both')
      assert.notEqual(forks[0].sandboxId, forks[1].sandboxId)
    })

    test('rules that the original refuses', async () => {
      await assert.rejects(create({ network: { allowOut: ['example.com'] } }), /400.*ALL_TRAFFIC/)
      await assert.rejects(create({ network: { denyOut: ['example.com'] } }), /400.*invalid denied CIDR example.com/)
      await create({ network: { allowOut: ['example.com'], denyOut: ['0.0.0.0/0'] } })
    })

    test('rules that put headers into requests are refused by name, and no part of such a network counts', async () => {
      const rules = { 'api.example.com': [{ transform: { headers: { Authorization: 'Bearer x' } } }] }
      await assert.rejects(create({ network: { rules, denyOut: ['0.0.0.0/0'] }, metadata: { rules: 'yes' } }), /501.*network.rules is not supported by this server/)
      assert.deepEqual(await Sandbox.list({ query: { metadata: { tag, rules: 'yes' } } }).nextItems(), [])
      const open = await create({ network: { denyOut: ['192.0.2.1'] } })
      await assert.rejects(open.updateNetwork({ rules, denyOut: ['192.0.2.2'] }), /501.*network.rules is not supported by this server/)
      assert.deepEqual((await open.getInfo()).network.denyOut, ['192.0.2.1'])
    })

    if (Secret) // of the newer generation
      test('secrets are refused by name', async () => {
        for (const ask of [() => Secret.create('key', 'value'), () => Secret.list().nextItems(), () => Secret.destroy('key')])
          await assert.rejects(ask(), /501.*\/secrets is not supported by this server; give variables/)
      })

    test('base exists, and so does no other', async () => {
      assert.equal(await Template.exists('base'), true)
      assert.equal(await Template.exists('nobody-built-this'), false)
      await assert.rejects(create({}, 'nobody-built-this'), /404.*not found/)
    })

    test('kill: true, then false; nothing meant for it runs here', async () => {
      const dead = await create()
      assert.equal(await dead.kill(), true)
      assert.equal(await dead.kill(), false)
      assert.equal(await Sandbox.kill(nobody), false)
      assert.equal(await dead.isRunning(), false)
      await assert.rejects(Sandbox.connect(dead.sandboxId), SandboxNotFoundError)
      await assert.rejects(dead.setTimeout(1000), SandboxNotFoundError)
      const mark = `/tmp/tend-escape-${tag}`
      await assert.rejects(dead.commands.run(`touch ${mark}`))
      await assert.rejects(dead.files.write(mark, 'x'))
      const link = await dead.uploadUrl(mark)
      // By domain the link has the name of a sandbox, which there is not.
      assert.equal((await fetch(link, { method: 'POST', body: new Blob(['x']), headers: { 'Content-Type': 'application/octet-stream' } })).status, process.env.E2B_DOMAIN ? 502 : 401)
      assert.equal(existsSync(mark), false)
      rmSync(mark, { force: true })
    })
  })
}
