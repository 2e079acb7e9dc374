// Volumes: what npm e2b makes, mounts in sandboxes, and reads and writes from outside.
import { test, describe, before, after } from 'node:test'
import assert from 'node:assert/strict'
import { Sandbox, Volume, VolumeError, VolumeFileType, VolumeNotFoundError, VolumePathNotFoundError, SandboxError } from 'e2b'
import { makeSandboxes, url } from '../helpers.mjs'

makeSandboxes()
if (!process.env.E2B_DOMAIN) process.env.E2B_VOLUME_API_URL = url
const unique = (name) => `js-${name}-${process.pid}-${Date.now()}`

describe('volumes by e2b', () => {
  let volume
  const made = []
  const create = async (volumeMounts) => {
    const sbx = await Sandbox.create('base', { timeoutMs: 300_000, volumeMounts })
    made.push(sbx)
    return sbx
  }
  before(async () => {
    volume = await Volume.create(unique('files'))
  })
  after(async () => {
    await Promise.all(made.map((s) => s.kill().catch(() => {})))
    if (volume) assert.equal(await Volume.destroy(volume.volumeId), true)
  })

  test('one is made, found, listed and destroyed', async () => {
    const name = unique('life')
    const v = await Volume.create(name)
    assert.equal(v.name, name)
    assert.match(v.volumeId, /^[0-9a-f-]{36}$/)
    assert.ok((await Volume.list()).some((l) => l.volumeId === v.volumeId && l.name === name))
    assert.equal((await Volume.getInfo(v.volumeId)).token, v.token)
    await assert.rejects(Volume.create(name), VolumeError)
    await assert.rejects(Volume.create('a/b'), VolumeError)
    await (await Volume.connect(v.volumeId)).writeFile('/a', '1')
    assert.equal(await v.readFile('/a'), '1')
    assert.equal(await Volume.destroy(v.volumeId), true)
    assert.equal(await Volume.destroy(v.volumeId), false)
    await assert.rejects(Volume.getInfo(v.volumeId), VolumeNotFoundError)
    await assert.rejects(v.readFile('/a')) // its token is of no use any more
  })

  test('files: text, bytes, blobs and streams, with owner and mode', async () => {
    const stat = await volume.writeFile('/t.txt', 'Hello')
    assert.deepEqual([stat.name, stat.type, stat.path, stat.size], ['t.txt', VolumeFileType.FILE, '/t.txt', 5])
    for (const time of [stat.atime, stat.mtime, stat.ctime]) assert.ok(Math.abs(time - Date.now()) < 600_000)
    assert.equal(await volume.readFile('/t.txt'), 'Hello')
    const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => i % 251)
    await volume.writeFile('/b', bytes.buffer)
    assert.deepEqual(await volume.readFile('/b', { format: 'bytes' }), bytes)
    await volume.writeFile('/blob', new Blob(['a blob']))
    assert.equal(await (await volume.readFile('/blob', { format: 'blob' })).text(), 'a blob')
    await volume.writeFile('/stream', new Blob(['a stream']).stream())
    let text = ''
    for await (const part of await volume.readFile('/stream', { format: 'stream' })) text += new TextDecoder().decode(part)
    assert.equal(text, 'a stream')
    await volume.writeFile('/empty', '')
    assert.equal(await volume.readFile('/empty'), '')
    assert.equal((await volume.readFile('/empty', { format: 'bytes' })).length, 0)
    await assert.rejects(volume.writeFile('/t.txt', 'other'), VolumeError)
    await assert.rejects(volume.writeFile('/t.txt', 'other', { force: false }), VolumeError)
    await volume.writeFile('/t.txt', 'other', { force: true })
    assert.equal(await volume.readFile('/t.txt'), 'other')
    const ids = process.getuid() === 0 ? 1000 : 0
    const owned = await volume.writeFile('/owned', 'x', { uid: ids, gid: ids, mode: 0o640 })
    assert.deepEqual([owned.uid, owned.gid, owned.mode], [ids, ids, 0o640])
    const changed = await volume.updateMetadata('/owned', { mode: 0o755 })
    assert.deepEqual([changed.uid, changed.gid, changed.mode], [ids, ids, 0o755])
    await assert.rejects(volume.updateMetadata('/none', { mode: 0o644 }), VolumePathNotFoundError)
    await assert.rejects(volume.updateMetadata('/owned', { mode: 0o4755 }), /mode/)
    await assert.rejects(volume.readFile('/none'), VolumePathNotFoundError)
    await assert.rejects(volume.writeFile('/none/file', 'x'), VolumePathNotFoundError)
  })

  test('directories: made, listed by depth, removed', async () => {
    const dir = await volume.makeDir('/dir', { mode: 0o750 })
    assert.deepEqual([dir.type, dir.mode & 0o777, dir.path], [VolumeFileType.DIRECTORY, 0o750, '/dir'])
    await assert.rejects(volume.makeDir('/dir'), VolumeError)
    await volume.makeDir('/dir', { force: true })
    await assert.rejects(volume.makeDir('/a/b/c'), VolumePathNotFoundError)
    await volume.makeDir('/a/b/c', { force: true })
    await volume.writeFile('/a/b/c/f', 'deep')
    await volume.writeFile('/x/y/f', 'forced', { force: true })
    const paths = async (path, depth) => (await volume.list(path, { depth })).map((e) => e.path)
    assert.deepEqual(await paths('/a'), ['/a/b'])
    assert.deepEqual(await paths('/a', 3), ['/a/b', '/a/b/c', '/a/b/c/f'])
    await assert.rejects(volume.list('/none'), VolumePathNotFoundError)
    await assert.rejects(volume.list('/a', { depth: 11 }), /depth/)
    assert.equal(await volume.exists('/a/b'), true)
    await volume.remove('/a')
    assert.equal(await volume.exists('/a/b'), false)
    await assert.rejects(volume.remove('/a'), VolumePathNotFoundError)
    await assert.rejects(volume.remove('/'), VolumeError)
  })

  test('sandboxes share it, by name and by object, and it outlives them', async () => {
    await volume.writeFile('/from-outside', 'hello\n')
    const [one, two] = await Promise.all([create({ '/mnt/shared': volume }), create({ '/data/vol': volume.name })])
    const run = async (s, line) => (await s.commands.run(line)).stdout
    assert.equal(await run(one, 'cat /mnt/shared/from-outside && echo inside > /mnt/shared/from-inside && echo more >> /mnt/shared/from-outside'), 'hello\n')
    assert.equal(await run(two, 'cat /data/vol/from-inside /data/vol/from-outside'), 'inside\nhello\nmore\n')
    assert.equal(await volume.readFile('/from-inside'), 'inside\n')
    await two.files.write('/data/vol/by-files', 'by files')
    assert.equal(await one.files.read('/mnt/shared/by-files'), 'by files')
    assert.deepEqual((await one.getInfo()).volumeMounts, [{ name: volume.name, path: '/mnt/shared' }])
    await one.pause({ keepMemory: false })
    await assert.rejects(Volume.destroy(volume.volumeId), /409|in use/) // it would be missing later
    await one.connect()
    assert.equal(await run(one, 'cat /mnt/shared/from-inside'), 'inside\n')
    await Promise.all([one.kill(), two.kill()])
    const later = await create({ '/v': volume })
    assert.equal(await run(later, 'cat /v/by-files'), 'by files')
    await later.kill()
  })

  test('a mount that cannot be is refused with its place in the request', async () => {
    await assert.rejects(create({ '/v': 'there-is-none' }), (e) => e instanceof SandboxError && /volumeMounts\[0\]\.name.*there-is-none/.test(e.message))
    await assert.rejects(create({ 'v/../w': volume }), /volumeMounts\[0\]\.path/)
    await assert.rejects(create({ '/proc/v': volume }), /volumeMounts\.path.*\/proc/)
  })

  test('a token is of one volume, and links lead nowhere', async () => {
    const other = await Volume.create(unique('other'))
    try {
      await other.writeFile('/secret', 'theirs')
      const forged = new Volume(other.volumeId, other.name, volume.token, other.domain)
      await assert.rejects(forged.readFile('/secret'), /401|token/)
      await assert.rejects(volume.readFile(`/../${other.volumeId}/secret`), VolumePathNotFoundError)
      const sbx = await create({ '/v': volume })
      await sbx.commands.run(`cd /v && ln -s ../${other.volumeId}/secret up && ln -s /etc/passwd passwd && ln -s from-outside fine`)
      for (const path of ['/up', '/passwd']) {
        await assert.rejects(volume.readFile(path), /leads out of the volume/)
        assert.equal((await volume.getInfo(path)).type, VolumeFileType.SYMLINK)
      }
      assert.match(await volume.readFile('/fine'), /hello/)
      await sbx.kill()
    } finally {
      await Volume.destroy(other.volumeId)
    }
  })
})
