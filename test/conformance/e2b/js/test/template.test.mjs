// Templates as the SDKs build them: steps over base or another template, files, an error at its step, tags.
import { test, describe } from 'node:test'
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeSandboxes } from '../helpers.mjs'

makeSandboxes()

for (const generation of ['e2b', 'e2b-v1']) {
  const { Sandbox, Template, BuildError } = await import(generation)
  const name = `${generation}-${process.pid}`

  describe(`templates by ${generation}`, () => {
    const inside = async (template, run) => {
      const sbx = await Sandbox.create(template, { timeoutMs: 300_000 })
      try {
        return await run(sbx)
      } finally {
        await sbx.kill()
      }
    }

    test('is built of steps and files, by its lines, and sandboxes are made from it', async (t) => {
      const dir = mkdtempSync(join(tmpdir(), 'tend-template-'))
      t.after(() => rmSync(dir, { recursive: true, force: true }))
      writeFileSync(join(dir, 'copied.txt'), 'of the builder')
      const lines = []
      const template = Template({ fileContextPath: dir })
        .fromTemplate('base')
        .setEnvs({ FROM_TEMPLATE: 'yes' })
        .copy('copied.txt', '/opt/app/copied.txt')
        .setWorkdir('/opt/app')
        .runCmd(`echo built > built.txt; echo a line of ${name}`, { user: 'root' })
      assert.equal(await Template.exists(name), false)
      const info = await Template.build(template, name, { onBuildLogs: (l) => lines.push(l.message) })
      assert.equal(await Template.exists(name), true)
      assert.ok(info.templateId && info.buildId)
      assert.equal(lines.filter((l) => l.includes(`a line of ${name}`) && !l.includes('echo')).length, 1, lines.join('\n'))
      await inside(name, async (sbx) => {
        assert.equal((await sbx.commands.run('echo $FROM_TEMPLATE; cat /opt/app/copied.txt /opt/app/built.txt')).stdout, 'yes\nof the builderbuilt\n')
        assert.equal((await sbx.getInfo()).templateId, info.templateId)
      })
    })

    test('the SDKs begin with an image, which is base', async () => {
      await Template.build(Template().runCmd('echo begun > /tmp/begun'), `${name}-image`)
      await inside(`${name}-image`, async (sbx) => assert.equal(await sbx.files.read('/tmp/begun'), 'begun\n'))
    })

    test('steps begin as the user, in the home, and so does the sandbox', async () => {
      await Template.build(Template().fromTemplate('base').runCmd('whoami > who; pwd >> who'), `${name}-home`)
      await inside(`${name}-home`, async (sbx) => {
        assert.equal(await sbx.files.read('who'), 'user\n/home/user\n')
        assert.equal((await sbx.commands.run('stat -c %U who; pwd')).stdout, 'user\n/home/user\n')
      })
    })

    test('a user, a template, a start command that there is not', async () => {
      const base = () => Template().fromTemplate('base')
      await assert.rejects(Template.build(base().runCmd('whoami', { user: 'nobody-there' }), `${name}-user`), /failed to run command 'whoami': command failed: unauthenticated: invalid username: 'nobody-there'/)
      await assert.rejects(Template.build(base().setUser('; exit 1'), `${name}-user2`), BuildError)
      await assert.rejects(Template.build(Template().fromTemplate('this-there-is-not'), `${name}-from`), (e) => e instanceof BuildError && /not found/.test(e.message))
      await assert.rejects(Template.build(base().setStartCmd('./nothing', 'sleep 600'), `${name}-start`), /start command: the command ended with exit status 127/)
    })

    test('tags of a template that has no default one', async () => {
      if (!Template.getTags) return
      await Template.build(Template().fromTemplate('base'), `${name}-tags:v1.0`)
      assert.deepEqual((await Template.assignTags(`${name}-tags:v1.0`, ['production', 'stable'])).tags, ['production', 'stable'])
      for (const [alias, there] of Object.entries({ '': true, ':v1.0': true, ':stable': true, ':v9': false })) assert.equal(await Template.exists(`${name}-tags${alias}`), there, alias)
      await assert.rejects(Sandbox.create(`${name}-tags`), /404.*not found/) // the tag "default" is meant
      await assert.rejects(Sandbox.create(`${name}-tags:v9`), /404.*tag "v9" does not exist for template/)
      const [{ buildId }] = await Template.getTags(`${name}-tags`)
      const sandbox = await Sandbox.create(`${name}-tags:${buildId}`) // as Harbor does it
      await sandbox.kill()
      await Template.removeTags(`${name}-tags`, 'production')
      assert.deepEqual((await Template.getTags(`${name}-tags`)).map((t) => t.tag).sort(), ['stable', 'v1.0'])
      await assert.rejects(Template.assignTags(`${name}-tags:v1.0`, ':none'))
    })

    test('a start command runs in each sandbox, in forks, and in sandboxes from snapshots', async () => {
      await Template.build(Template().fromTemplate('base').setStartCmd('exec python3 -m http.server 8700 --bind 127.0.0.1', 'curl -sf localhost:8700/ >/dev/null'), `${name}-server`)
      const made = []
      const serves = async (sbx) => (await sbx.commands.run('echo of this one > own; curl -sf localhost:8700/own')).stdout
      try {
        made.push(await Sandbox.create(`${name}-server`, { timeoutMs: 120_000 }))
        assert.equal(await serves(made[0]), 'of this one\n')
        made.push(...(await made[0].fork({ count: 2, timeoutMs: 120_000 })))
        const snapshot = await made[0].createSnapshot()
        made.push(await Sandbox.create(snapshot.snapshotId, { timeoutMs: 120_000 }))
        for (const copy of made.slice(1)) assert.equal(await serves(copy), 'of this one\n')
      } finally {
        await Promise.all(made.map((s) => s.kill()))
      }
    })

    test('a step that fails ends the build, and there is no template', async () => {
      await assert.rejects(Template.build(Template().fromTemplate('base').runCmd('exit 7'), `${name}-broken`), BuildError)
      assert.equal(await Template.exists(`${name}-broken`), false)
    })
  })
}
