// Templates from images. images_linux_test.go runs it, with a mirror of docker.io that has ubuntu:22.04 alone.
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Sandbox, Template, BuildError } from 'e2b'

const name = `js-${process.pid}`
const dir = mkdtempSync(join(tmpdir(), 'tend-images-'))
test.after(() => rmSync(dir, { recursive: true, force: true }))
writeFileSync(join(dir, 'copied.txt'), 'of the builder\n')

const said = async (template, command, opts) => {
  const sbx = await Sandbox.create(template, { timeoutMs: 300_000 })
  try {
    return (await sbx.commands.run(command, opts)).stdout
  } finally {
    await sbx.kill()
  }
}

test('an image becomes a machine with the account user, in steps', async () => {
  const lines = []
  const template = Template({ fileContextPath: dir })
    .fromImage('ubuntu:22.04')
    .setEnvs({ OF_TEMPLATE: 'yes' })
    .copy('copied.txt', 'copied.txt')
    .runCmd('echo $(id -u) $(pwd) $OF_IMAGE $OF_TEMPLATE > made')
    .runCmd('id -u > /etc/made-by', { user: 'root' })
  await Template.build(template, `${name}-steps`, { onBuildLogs: (l) => lines.push(l.message) })
  assert.ok(lines.some((l) => /layer 1 of 2 (is unpacked|was there already)/.test(l)), lines.join('\n'))
  assert.equal(await said(`${name}-steps`, 'cat made copied.txt /etc/made-by /etc/image; test -e /gone || echo gone; stat -c %u:%g .; echo $OF_IMAGE'),
    '1000 /home/user yes yes\nof the builder\n0\nsmall\ngone\n1000:1000\nyes\n')
  const again = []
  await Template.build(template, `${name}-steps`, { onBuildLogs: (l) => again.push(l.message) })
  assert.equal(again.filter((l) => l === 'taken from the cache').length, 3, again.join('\n'))
})

test('a Dockerfile is a template', async () => {
  const file = `FROM ubuntu:22.04
ARG BUILT=by-argument
ENV COLOUR=blue
WORKDIR /app
COPY --chown=root:root copied.txt ./
RUN echo "$BUILT $COLOUR" > built && \\
    stat -c %U:%G copied.txt >> built
USER root
CMD ["sleep", "1000"]
`
  const template = Template({ fileContextPath: dir }).fromDockerfile(file).setReadyCmd('test -e /app/built')
  await Template.build(template, `${name}-file`)
  assert.equal(await said(`${name}-file`, 'cat built; pwd; id -u'), 'by-argument blue\nroot:root\n/app\n0\n')
  assert.match(await said(`${name}-file`, 'cat /proc/[0-9]*/comm 2>/dev/null; true'), /^sleep$/m) // its CMD
})

test('a registry with accounts wants those of the caller', async () => {
  const { PRIVATE } = process.env
  await assert.rejects(Template.build(Template().fromImage(PRIVATE), `${name}-denied`), (e) => e instanceof BuildError && /access denied/.test(e.message))
  await Template.build(Template().fromImage(PRIVATE, { username: 'me', password: 'secret-word' }), `${name}-private`)
  assert.equal(await said(`${name}-private`, 'cat /etc/image'), 'small\n')
  await assert.rejects(Template.build(Template().fromImage(PRIVATE), `${name}-denied`), /access denied/)
})

test('no image leads to the machine of the server', async () => {
  for (const image of [process.env.OWN, '169.254.169.254/latest:1', 'localhost:1/x:1'])
    await assert.rejects(Template.build(Template().fromImage(image), `${name}-own`), (e) => e instanceof BuildError && /no address that a sandbox may reach/.test(e.message))
  await assert.rejects(Template.build(Template().fromImage('Not A Name'), `${name}-bad`), (e) => e instanceof BuildError && /such as python:3/.test(e.message))
})
