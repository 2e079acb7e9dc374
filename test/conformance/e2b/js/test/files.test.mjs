import { test, describe, before } from 'node:test'
import assert from 'node:assert/strict'
import { randomBytes, createHash } from 'node:crypto'
import { FileType, NotFoundError, InvalidArgumentError, AuthenticationError } from 'e2b'
import { sandbox, scratch, users, named, homeOf, me } from '../helpers.mjs'

const text = 'grüß\n世界 🚀\n'

describe('files', () => {
  let sbx
  before(async () => { sbx = await sandbox() })

  for (const user of users) {
    describe(`as ${named(user)}`, () => {
      const name = user ?? me
      test('write makes parents, tells what it wrote, and the file is the user\'s', async (t) => {
        const path = `${scratch(t)}/a/b/c.txt`
        const info = await sbx.files.write(path, text, { user })
        assert.equal(info.name, 'c.txt')
        assert.equal(info.path, path)
        assert.equal(info.type, FileType.FILE)
        assert.equal(await sbx.files.read(path, { user }), text)
        assert.equal((await sbx.commands.run(`stat -c %U ${path}`)).stdout, `${name}\n`)
        assert.equal((await sbx.commands.run(`stat -c %U $(dirname ${path})`)).stdout, `${name}\n`)
      })
      test('a relative path starts at the home', async () => {
        const file = `tend-e2b-${process.pid}.txt`
        const info = await sbx.files.write(file, 'here', { user })
        try {
          assert.equal(info.path, `${homeOf(user)}/${file}`)
          assert.equal(await sbx.files.read(`~/${file}`, { user }), 'here')
        } finally {
          await sbx.files.remove(file, { user })
        }
        assert.equal(await sbx.files.exists(file, { user }), false)
      })
      test('makeDir is true once and false after', async (t) => {
        const path = `${scratch(t)}/x/y`
        assert.equal(await sbx.files.makeDir(path, { user }), true)
        assert.equal(await sbx.files.makeDir(path, { user }), false)
        assert.equal((await sbx.files.getInfo(path, { user })).owner, name)
      })
    })
  }

  test('reads give text, bytes, a blob and a stream', async (t) => {
    const path = `${scratch(t)}/f`
    const data = randomBytes(300_000)
    await sbx.files.write(path, data.buffer.slice(data.byteOffset, data.byteOffset + data.length))
    assert.deepEqual(Buffer.from(await sbx.files.read(path, { format: 'bytes' })), data)
    const blob = await sbx.files.read(path, { format: 'blob' })
    assert.deepEqual(Buffer.from(await blob.arrayBuffer()), data)
    const parts = []
    for await (const part of await sbx.files.read(path, { format: 'stream' })) parts.push(part)
    assert.deepEqual(Buffer.concat(parts), data)
    await sbx.files.write(path, text)
    assert.equal(await sbx.files.read(path, { format: 'text' }), text)
  })
  test('writes take a string, an ArrayBuffer, a Blob and a stream', async (t) => {
    const dir = scratch(t)
    const bytes = new TextEncoder().encode(text)
    const forms = {
      string: text,
      buffer: bytes.buffer,
      blob: new Blob([bytes]),
      stream: new Blob([bytes]).stream(),
    }
    for (const [kind, data] of Object.entries(forms)) {
      await sbx.files.write(`${dir}/${kind}`, data)
      assert.equal(await sbx.files.read(`${dir}/${kind}`), text, kind)
    }
  })
  for (const useOctetStream of [false, true]) {
    for (const gzip of [false, true]) {
      test(`writes and reads with octet stream ${useOctetStream} and gzip ${gzip}`, async (t) => {
        const path = `${scratch(t)}/f`
        const data = text.repeat(5000)
        const info = await sbx.files.write(path, data, { useOctetStream, gzip })
        assert.equal(info.path, path)
        assert.equal(await sbx.files.read(path, { gzip }), data)
      })
    }
  }
  test('metadata of a file is kept with it', async (t) => {
    const path = `${scratch(t)}/f`
    const info = await sbx.files.write(path, 'x', { metadata: { author: 'ada', 'build-id': '7' } })
    assert.deepEqual(info.metadata, { author: 'ada', 'build-id': '7' })
    assert.deepEqual((await sbx.files.getInfo(path)).metadata, { author: 'ada', 'build-id': '7' })
    await sbx.files.write(path, 'y')
    assert.equal((await sbx.files.getInfo(path)).metadata?.author, undefined, 'a new write replaces it')
  })
  test('writing again replaces the content, also with less', async (t) => {
    const path = `${scratch(t)}/f`
    await sbx.files.write(path, 'a longer text')
    await sbx.files.write(path, 'short')
    assert.equal(await sbx.files.read(path), 'short')
    await sbx.files.write(path, '')
    assert.equal(await sbx.files.read(path), '')
  })
  test('several files are written at once', async (t) => {
    const dir = scratch(t)
    const infos = await sbx.files.write([1, 2, 3].map((n) => ({ path: `${dir}/sub${n}/f${n}`, data: `data ${n}` })))
    assert.deepEqual(infos.map((i) => i.path), [1, 2, 3].map((n) => `${dir}/sub${n}/f${n}`))
    for (const n of [1, 2, 3]) assert.equal(await sbx.files.read(`${dir}/sub${n}/f${n}`), `data ${n}`)
    assert.deepEqual(await sbx.files.writeFiles([]), [])
  })
  test('48 MiB go up and come down unchanged', async (t) => {
    const path = `${scratch(t)}/big`
    const part = randomBytes(1 << 20)
    const data = Buffer.concat(Array.from({ length: 48 }, (_, i) => { const p = Buffer.from(part); p.writeUInt32BE(i); return p }))
    const want = createHash('sha256').update(data).digest('hex')
    await sbx.files.write(path, new Blob([data]), { requestTimeoutMs: 100_000 })
    assert.equal((await sbx.commands.run(`sha256sum < ${path}`)).stdout, `${want}  -\n`)
    const got = await sbx.files.read(path, { format: 'bytes', requestTimeoutMs: 100_000 })
    assert.equal(createHash('sha256').update(got).digest('hex'), want)
  })
  test('names with spaces, quotes and other scripts', async (t) => {
    const dir = scratch(t)
    for (const name of ['a b.txt', 'ä"\'&?#%.txt', '文件', '+plus+']) {
      await sbx.files.write(`${dir}/${name}`, name)
      assert.equal(await sbx.files.read(`${dir}/${name}`), name)
    }
    assert.equal((await sbx.files.list(dir)).length, 4)
  })

  test('getInfo tells all of a file, a directory and a link', async (t) => {
    const dir = scratch(t)
    await sbx.files.write(`${dir}/f`, '12345')
    await sbx.commands.run(`chmod 640 ${dir}/f; ln -s ${dir}/f ${dir}/l; touch -d '2024-01-02T03:04:05Z' ${dir}/f`)
    const info = await sbx.files.getInfo(`${dir}/f`)
    assert.equal(info.name, 'f')
    assert.equal(info.type, FileType.FILE)
    assert.equal(info.path, `${dir}/f`)
    assert.equal(info.size, 5)
    assert.equal(info.mode, 0o640)
    assert.equal(info.permissions, '-rw-r-----')
    assert.equal(info.owner, me)
    assert.ok(info.group)
    assert.equal(info.modifiedTime.toISOString(), '2024-01-02T03:04:05.000Z')
    assert.equal((await sbx.files.getInfo(dir)).type, FileType.DIR)
    const link = await sbx.files.getInfo(`${dir}/l`)
    assert.equal(link.symlinkTarget, `${dir}/f`)
  })
  test('list gives entries to the depth asked for', async (t) => {
    const dir = scratch(t)
    await sbx.files.write([{ path: `${dir}/a`, data: '' }, { path: `${dir}/d/b`, data: '' }, { path: `${dir}/d/e/c`, data: '' }])
    const paths = async (opts) => (await sbx.files.list(dir, opts)).map((e) => `${e.type}:${e.path.slice(dir.length + 1)}`).sort()
    assert.deepEqual(await paths(), ['dir:d', 'file:a'])
    assert.deepEqual(await paths({ depth: 2 }), ['dir:d', 'dir:d/e', 'file:a', 'file:d/b'])
    assert.deepEqual(await paths({ depth: 9 }), ['dir:d', 'dir:d/e', 'file:a', 'file:d/b', 'file:d/e/c'])
    await assert.rejects(sbx.files.list(dir, { depth: 0 }), InvalidArgumentError)
  })
  test('rename moves files and directories', async (t) => {
    const dir = scratch(t)
    await sbx.files.write(`${dir}/a`, 'data')
    const info = await sbx.files.rename(`${dir}/a`, `${dir}/b`)
    assert.equal(info.path, `${dir}/b`)
    assert.equal(await sbx.files.exists(`${dir}/a`), false)
    assert.equal(await sbx.files.read(`${dir}/b`), 'data')
    await sbx.files.makeDir(`${dir}/d`)
    await sbx.files.rename(`${dir}/d`, `${dir}/e`)
    assert.equal((await sbx.files.getInfo(`${dir}/e`)).type, FileType.DIR)
    await assert.rejects(sbx.files.rename(`${dir}/none`, `${dir}/x`), NotFoundError)
  })
  test('remove takes files, trees and what is not there', async (t) => {
    const dir = scratch(t)
    await sbx.files.write(`${dir}/d/e/f`, 'x')
    await sbx.files.remove(`${dir}/d`)
    assert.equal(await sbx.files.exists(`${dir}/d`), false)
    await sbx.files.remove(`${dir}/d`)
  })
  test('what is missing, or a directory, or of nobody, is refused in the right words', async (t) => {
    const dir = scratch(t)
    await assert.rejects(sbx.files.read(`${dir}/none`), (err) => err instanceof NotFoundError && err.message.includes(`${dir}/none`))
    await assert.rejects(sbx.files.read(dir), InvalidArgumentError)
    await assert.rejects(sbx.files.getInfo(`${dir}/none`), NotFoundError)
    await assert.rejects(sbx.files.list(`${dir}/none`), NotFoundError)
    await sbx.files.write(`${dir}/f`, '')
    await assert.rejects(sbx.files.list(`${dir}/f`), InvalidArgumentError)
    await assert.rejects(sbx.files.read(`${dir}/f`, { user: 'no-such-user' }), AuthenticationError)
    assert.equal(await sbx.files.exists(`${dir}/none`), false)
  })
})
