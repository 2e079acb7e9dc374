import { test, describe, before } from 'node:test'
import assert from 'node:assert/strict'
import { sandbox, scratch, users, named } from '../helpers.mjs'

describe('git', () => {
  let sbx
  before(async () => { sbx = await sandbox() })

  for (const user of users) {
    const opts = { user }
    const author = { ...opts, authorName: 'Ada', authorEmail: 'ada@example.com' }

    test(`init, add, commit, status and branches as ${named(user)}`, async (t) => {
      const repo = `${scratch(t)}/repo`
      await sbx.git.init(repo, { ...opts, initialBranch: 'main' })
      await sbx.files.write(`${repo}/a.txt`, 'one\n', opts)
      let status = await sbx.git.status(repo, opts)
      assert.equal(status.currentBranch, 'main')
      assert.equal(status.isClean, false)
      assert.equal(status.hasUntracked, true)
      assert.deepEqual(status.fileStatus.map((f) => [f.name, f.status]), [['a.txt', 'untracked']])
      await sbx.git.add(repo, opts)
      assert.equal((await sbx.git.status(repo, opts)).hasStaged, true)
      await sbx.git.commit(repo, 'First\n\nwith a body', author)
      status = await sbx.git.status(repo, opts)
      assert.equal(status.isClean, true)
      const log = await sbx.commands.run('git log --format="%an <%ae> %B"', { ...opts, cwd: repo })
      assert.equal(log.stdout.trim(), 'Ada <ada@example.com> First\n\nwith a body')

      await sbx.git.createBranch(repo, 'side', opts)
      let branches = await sbx.git.branches(repo, opts)
      assert.deepEqual([...branches.branches].sort(), ['main', 'side'])
      assert.equal(branches.currentBranch, 'side')
      await sbx.git.checkoutBranch(repo, 'main', opts)
      await sbx.git.deleteBranch(repo, 'side', opts)
      branches = await sbx.git.branches(repo, opts)
      assert.deepEqual(branches.branches, ['main'])
    })

    test(`reset and restore as ${named(user)}`, async (t) => {
      const repo = `${scratch(t)}/repo`
      await sbx.git.init(repo, { ...opts, initialBranch: 'main' })
      await sbx.files.write(`${repo}/a.txt`, 'one\n', opts)
      await sbx.git.add(repo, opts)
      await sbx.git.commit(repo, 'First', author)
      await sbx.files.write(`${repo}/a.txt`, 'two\n', opts)
      await sbx.git.restore(repo, { ...opts, paths: ['a.txt'] })
      assert.equal(await sbx.files.read(`${repo}/a.txt`), 'one\n')
      await sbx.files.write(`${repo}/a.txt`, 'three\n', opts)
      await sbx.git.add(repo, { ...opts, files: ['a.txt'] })
      await sbx.git.reset(repo, { ...opts, mode: 'hard' })
      assert.equal((await sbx.git.status(repo, opts)).isClean, true)
      assert.equal(await sbx.files.read(`${repo}/a.txt`), 'one\n')
    })

    test(`clone, push and pull by way of a bare repository as ${named(user)}`, async (t) => {
      const dir = scratch(t)
      await sbx.git.init(`${dir}/hub`, { ...opts, bare: true, initialBranch: 'main' })
      await sbx.git.init(`${dir}/one`, { ...opts, initialBranch: 'main' })
      await sbx.git.remoteAdd(`${dir}/one`, 'origin', `file://${dir}/hub`, opts)
      assert.equal(await sbx.git.remoteGet(`${dir}/one`, 'origin', opts), `file://${dir}/hub`)
      assert.equal(await sbx.git.remoteGet(`${dir}/one`, 'none', opts), undefined)
      await sbx.files.write(`${dir}/one/f`, '1', opts)
      await sbx.git.add(`${dir}/one`, opts)
      await sbx.git.commit(`${dir}/one`, 'One', author)
      await sbx.git.push(`${dir}/one`, { ...opts, remote: 'origin', branch: 'main', setUpstream: true })
      await sbx.git.clone(`file://${dir}/hub`, { ...opts, path: `${dir}/two` })
      assert.equal(await sbx.files.read(`${dir}/two/f`), '1')
      await sbx.files.write(`${dir}/one/f`, '2', opts)
      await sbx.git.add(`${dir}/one`, opts)
      await sbx.git.commit(`${dir}/one`, 'Two', author)
      await sbx.git.push(`${dir}/one`, opts)
      await sbx.git.pull(`${dir}/two`, opts)
      assert.equal(await sbx.files.read(`${dir}/two/f`), '2')
      assert.equal((await sbx.git.status(`${dir}/two`, opts)).behind, 0)
    })

    test(`configuration of a repository as ${named(user)}`, async (t) => {
      const repo = `${scratch(t)}/repo`
      await sbx.git.init(repo, opts)
      await sbx.git.setConfig('pull.rebase', 'false', { ...opts, scope: 'local', path: repo })
      assert.equal(await sbx.git.getConfig('pull.rebase', { ...opts, scope: 'local', path: repo }), 'false')
      assert.equal(await sbx.git.getConfig('no.such', { ...opts, scope: 'local', path: repo }), undefined)
      await sbx.git.configureUser('Bob', 'bob@example.com', { ...opts, scope: 'local', path: repo })
      assert.equal(await sbx.git.getConfig('user.name', { ...opts, scope: 'local', path: repo }), 'Bob')
    })
  }

  test('a clone of nothing fails with what git says', async (t) => {
    const dir = scratch(t)
    await assert.rejects(sbx.git.clone(`file://${dir}/none`, { path: `${dir}/x` }), (err) => err.exitCode === 128 && /does not (exist|appear to be a git repository)/.test(err.stderr))
  })
})
