// By domain, with nothing but the variables of tend env: E2B's quick start, and what else of a sandbox has a name.
import { test, describe, before, after } from 'node:test'
import assert from 'node:assert/strict'
import https from 'node:https'
import http2 from 'node:http2'
import { Sandbox } from 'e2b'
import { until } from '../helpers.mjs'

describe('by domain', () => {
  let sandbox
  before(async () => {
    sandbox = await Sandbox.create({ timeoutMs: 300_000 })
  })
  after(() => sandbox.kill())

  test("E2B's quick start", async () => {
    await sandbox.commands.run('echo "Hello from E2B Sandbox!" > hello.txt')
    assert.equal(await sandbox.files.read('hello.txt'), 'Hello from E2B Sandbox!\n')
    await sandbox.files.write('/home/user/a', 'by name')
    const link = await sandbox.downloadUrl('/home/user/a')
    assert.match(link, /^https:\/\/49983-/)
    assert.equal(await (await fetch(link)).text(), 'by name')
    const failed = await sandbox.commands.run('exit 3').catch((e) => e)
    assert.equal(failed.exitCode, 3)
  })

  test('a port: HTTP/1.1, HTTP/2, WebSocket', async () => {
    const host = sandbox.getHost(31189)
    assert.equal(host, `31189-${sandbox.sandboxId}.${process.env.E2B_DOMAIN}`)
    const closed = await fetch(`https://${host}/`)
    assert.equal(closed.status, 502)
    assert.equal((await closed.json()).message, 'The sandbox is running but port is not open')
    await sandbox.files.write('/tmp/serve.mjs', `
      import http from 'node:http'
      http.createServer((req, res) => res.end([req.headers.host, req.headers['x-forwarded-proto'], req.url].join(' ')))
        .on('upgrade', (req, socket) => { socket.write('HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n'); socket.pipe(socket) })
        .listen(31189)`)
    const server = await sandbox.commands.run(`'${process.execPath}' /tmp/serve.mjs`, { background: true, timeoutMs: 0 })
    await until('the program listens', async () => (await fetch(`https://${host}/`)).status === 200)
    assert.equal(await (await fetch(`https://${host}/a?b`)).text(), `${host} https /a?b`)

    const session = http2.connect(`https://${host}`)
    const text = await new Promise((resolve, reject) => {
      let body = ''
      session.on('error', reject)
      session.request({ ':path': '/two' }).on('data', (d) => (body += d)).on('end', () => resolve(body)).on('error', reject)
    })
    session.close()
    assert.equal(text, `${host} https /two`)

    const socket = await new Promise((resolve, reject) =>
      https.request(`https://${host}/chat`, { headers: { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==' } })
        .on('upgrade', (_, s) => resolve(s)).on('response', (res) => reject(new Error(`status ${res.statusCode}`))).on('error', reject).end())
    const echoed = new Promise((resolve) => socket.once('data', (d) => resolve(String(d))))
    socket.write('over and back')
    assert.equal(await echoed, 'over and back')
    socket.destroy()
    await server.kill()
  })
})
