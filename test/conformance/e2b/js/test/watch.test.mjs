import { test, describe, before } from 'node:test'
import assert from 'node:assert/strict'
import { FilesystemEventType, NotFoundError, InvalidArgumentError } from 'e2b'
import { sandbox, scratch, until } from '../helpers.mjs'

describe('watchDir', () => {
  let sbx
  before(async () => { sbx = await sandbox() })

  /** Watches a directory and waits for events by type and name. */
  async function watch(t, dir, opts) {
    const events = []
    let ended
    const handle = await sbx.files.watchDir(dir, (e) => { events.push(e) }, { ...opts, onExit: (err) => { ended = { err } } })
    t.after(() => handle.stop())
    return {
      handle, events,
      sees: (type, name) => until(`${type} ${name} among ${JSON.stringify(events)}`, () => events.find((e) => e.type === type && e.name === name)),
      ends: () => until('the end', () => ended),
    }
  }
  const { CREATE, WRITE, CHMOD, REMOVE, RENAME } = FilesystemEventType

  test('create, write, chmod, rename and remove are told', async (t) => {
    const dir = scratch(t)
    const w = await watch(t, dir)
    await sbx.files.write(`${dir}/f`, 'x')
    await w.sees(CREATE, 'f')
    await w.sees(WRITE, 'f')
    await sbx.commands.run(`chmod 600 ${dir}/f`)
    await w.sees(CHMOD, 'f')
    await sbx.files.rename(`${dir}/f`, `${dir}/g`)
    await w.sees(RENAME, 'f')
    await w.sees(CREATE, 'g')
    await sbx.files.remove(`${dir}/g`)
    await w.sees(REMOVE, 'g')
  })
  test('a recursive watch tells of directories made later', async (t) => {
    const dir = scratch(t)
    await sbx.files.makeDir(`${dir}/old/deep`)
    const w = await watch(t, dir, { recursive: true })
    await sbx.files.write(`${dir}/old/deep/f`, 'x')
    await w.sees(WRITE, 'old/deep/f')
    await sbx.files.makeDir(`${dir}/new`)
    await w.sees(CREATE, 'new')
    await sbx.files.write(`${dir}/new/f`, 'x')
    await w.sees(CREATE, 'new/f')
  })
  test('a watch that is not recursive keeps to its directory', async (t) => {
    const dir = scratch(t)
    await sbx.files.makeDir(`${dir}/sub`)
    const w = await watch(t, dir)
    await sbx.files.write(`${dir}/sub/inner`, 'x')
    await sbx.files.write(`${dir}/outer`, 'x')
    await w.sees(CREATE, 'outer')
    assert.deepEqual(w.events.filter((e) => e.name.includes('inner')), [])
  })
  test('entries come along when asked for', async (t) => {
    const dir = scratch(t)
    const w = await watch(t, dir, { includeEntry: true })
    await sbx.files.makeDir(`${dir}/d`)
    const event = await w.sees(CREATE, 'd')
    assert.equal(event.entry.path, `${dir}/d`)
    assert.equal(event.entry.type, 'dir')
  })
  test('after stop nothing more comes', async (t) => {
    const dir = scratch(t)
    const w = await watch(t, dir)
    await w.handle.stop()
    await w.ends()
    const n = w.events.length
    const second = await watch(t, dir)
    await sbx.files.write(`${dir}/f`, 'x')
    await second.sees(CREATE, 'f')
    assert.equal(w.events.length, n)
  })
  test('a thousand files are all told', async (t) => {
    const dir = scratch(t)
    const w = await watch(t, dir)
    await sbx.commands.run(`cd ${dir} && for i in $(seq 1000); do : > f$i; done`)
    await until('all', () => new Set(w.events.filter((e) => e.type === CREATE).map((e) => e.name)).size === 1000)
  })
  test('only directories that exist can be watched', async (t) => {
    const dir = scratch(t)
    await assert.rejects(sbx.files.watchDir(`${dir}/none`, () => {}), NotFoundError)
    await sbx.files.write(`${dir}/f`, '')
    await assert.rejects(sbx.files.watchDir(`${dir}/f`, () => {}), InvalidArgumentError)
  })
})
