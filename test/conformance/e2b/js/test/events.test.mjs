// What becomes of sandboxes that npm e2b makes: by the API of events, and by webhooks, verified as E2B's documentation has it.
import { test, describe, before, after } from 'node:test'
import assert from 'node:assert/strict'
import http from 'node:http'
import { createHash } from 'node:crypto'
import { Sandbox } from 'e2b'
import { makeSandboxes, until, url } from '../helpers.mjs'

makeSandboxes()
const secret = 'a secret for the signatures'
const hookPort = Number(process.env.TEND_E2B_HOOK_PORT)

const api = async (method, path, body) => {
  const res = await fetch(url + path, {
    method,
    headers: { 'X-API-Key': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
  })
  const text = await res.text()
  return { status: res.status, json: text ? JSON.parse(text) : undefined }
}
const kinds = (list) => list.map((e) => e.type.replace('sandbox.lifecycle.', ''))

const verified = (body, signature) =>
  createHash('sha256').update(secret + body).digest('base64').replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '') === signature

describe('events of sandboxes', () => {
  let server, hook
  const got = []
  before(async () => {
    server = http.createServer(async (req, res) => {
      let body = ''
      for await (const part of req) body += part
      const first = got.length === 0
      got.push({ body, event: JSON.parse(body), headers: req.headers, first })
      res.writeHead(first ? 503 : 200).end() // the first is sent again
    })
    await new Promise((resolve) => server.listen(hookPort, '127.0.0.1', resolve))
    const made = await api('POST', '/events/webhooks', {
      name: 'My Sandbox Webhook', url: `http://127.0.0.1:${hookPort}/webhook`, enabled: true, signatureSecret: secret,
      events: ['created', 'updated', 'paused', 'resumed', 'killed'].map((k) => `sandbox.lifecycle.${k}`),
    })
    assert.equal(made.status, 201, JSON.stringify(made))
    hook = made.json
  })
  after(async () => {
    assert.equal((await api('DELETE', `/events/webhooks/${hook.id}`)).status, 200)
    server.closeAllConnections()
    server.close()
  })

  test('creation, timeout, pause, resumption, end: in the API and by the webhook', async () => {
    const sbx = await Sandbox.create('base', { timeoutMs: 300_000, metadata: { who: 'me' } })
    const id = sbx.sandboxId
    await sbx.setTimeout(600_000)
    await sbx.pause()
    await sbx.connect()
    await sbx.kill()
    const want = ['created', 'updated', 'paused', 'resumed', 'killed']
    const of = async (query) => (await api('GET', `/events/sandboxes/${id}${query}`)).json
    const events = await of('?orderAsc=true')
    assert.deepEqual(kinds(events), want)
    assert.deepEqual(kinds(await of('?limit=2')), ['killed', 'resumed'])
    assert.deepEqual(kinds(await of('?types=sandbox.lifecycle.paused')), ['paused'])
    for (const e of events) {
      assert.equal(e.sandboxId, id)
      assert.equal(e.sandboxTemplateId, 'base')
      assert.deepEqual(e.eventData.sandbox_metadata, { who: 'me' })
    }
    assert.ok(Math.abs(new Date(events[1].eventData.set_timeout) - Date.now() - 600_000) < 120_000)
    assert.equal(events[4].eventData.kill_reason, 'request')
    assert.equal(events[0].sandboxExecutionId, events[2].sandboxExecutionId)
    assert.notEqual(events[2].sandboxExecutionId, events[3].sandboxExecutionId)
    assert.ok((await api('GET', '/events/sandboxes?limit=100')).json.some((e) => e.id === events[0].id))

    const mine = () => got.filter((d) => d.event.sandboxId === id && !d.first)
    await until('all are delivered', () => mine().length >= want.length)
    assert.deepEqual(mine().map((d) => d.event), events)
    for (const d of mine()) {
      assert.equal(d.headers['e2b-webhook-id'], hook.id)
      assert.equal(d.headers['e2b-signature-version'], 'v1')
      assert.ok(verified(d.body, d.headers['e2b-signature']), d.body)
      assert.ok(!verified(d.body + ' ', d.headers['e2b-signature']))
    }
    assert.equal(new Set(got.map((d) => d.headers['e2b-delivery-id'])).size, got.length)
  })

  test('an end by timeout says so', async () => {
    const sbx = await Sandbox.create('base', { timeoutMs: 1000 })
    const last = await until('it is killed', async () => (await api('GET', `/events/sandboxes/${sbx.sandboxId}?types=sandbox.lifecycle.killed`)).json[0])
    assert.equal(last.eventData.kill_reason, 'timeout')
  })

  test('a pause at the end of the time, and a request that wakes it, are events', async () => {
    const sbx = await Sandbox.create('base', { timeoutMs: 2000, lifecycle: { onTimeout: 'pause', autoResume: true } })
    const info = await sbx.getInfo()
    assert.deepEqual(info.lifecycle, { onTimeout: 'pause', autoResume: true })
    const of = async () => kinds((await api('GET', `/events/sandboxes/${sbx.sandboxId}?orderAsc=true`)).json)
    try {
      await until('it is paused', async () => (await of()).includes('paused'))
      assert.equal((await sbx.commands.run('echo awake')).stdout, 'awake\n')
      assert.deepEqual(await of(), ['created', 'paused', 'resumed'])
    } finally {
      await sbx.kill()
    }
  })

  test('a webhook leads nowhere into this machine', async () => {
    for (const to of [url, 'http://127.0.0.1:1/', 'http://[::1]/', 'http://169.254.169.254/latest/meta-data', 'http://10.0.0.1/']) {
      const res = await api('POST', '/events/webhooks', { name: 'x', url: to, signatureSecret: secret, events: ['sandbox.lifecycle.created'] })
      assert.equal(res.status, 400, to)
      assert.match(res.json.message, /^url leads where no webhook goes/)
    }
  })
})
