// What the suites share: the sandbox, and waiting for things that must happen.
import assert from 'node:assert/strict'
import { Sandbox, TimeoutError } from 'e2b'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, chmodSync, rmSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'

/** The user that serves, and another one; equal unless root runs the suites. */
export const me = userInfo().username
export const other = process.env.TEND_E2B_USER ?? me

/** Users as a caller gives them: none (the default user), oneself, another. */
export const users = [...new Set([undefined, me, other])]
export const named = (user) => user ?? 'default user'
export const homeOf = (user) =>
  execFileSync('getent', ['passwd', user ?? me], { encoding: 'utf8' }).trim().split(':')[5]

/** The daemon without a name: by domain, run says it in a variable that no SDK knows. */
export const url = process.env.TEND_E2B_URL ?? process.env.E2B_SANDBOX_URL
if (!url) throw new Error('E2B_SANDBOX_URL is not set; run test/conformance/e2b/run js')

export const sandbox = () => Sandbox.create()

/** With E2B_DEBUG no sandbox is made. By domain the SDKs need no URL. */
export function makeSandboxes() {
  delete process.env.E2B_DEBUG
  if (!process.env.E2B_DOMAIN) process.env.E2B_API_URL = url
}

/** A directory that every user may write to, removed after the test. */
export function scratch(t) {
  const dir = mkdtempSync(join(tmpdir(), 'tend-e2b-js-'))
  chmodSync(dir, 0o777)
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

/** Resolves once check() is truthy; the bound only ends a test that fails. */
export async function until(what, check, bound = 120_000) {
  const end = Date.now() + bound
  for (;;) {
    const value = await check()
    if (value) return value
    if (Date.now() > end) throw new Error(`waited ${bound} ms in vain: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

/**
 * Calls attempt(ms) with twice the time until it says that what it wanted to be cut off
 * had begun: on a machine that is busy, a start takes its time, too.
 */
export async function inTime(ms, attempt) {
  while (!(await attempt(ms))) {
    ms *= 2
    assert.ok(ms < 60_000, 'nothing begins in a minute')
  }
}

/** What a call gives; undefined if its time was over before it gave anything. */
export const begun = (call) => call.catch((err) => { if (!(err instanceof TimeoutError)) throw err })

/** Whether a process exists and is no zombie. */
export const alive = async (sbx, pid) =>
  (await sbx.commands.run(`grep -qs '^State:.[^Z]' /proc/${pid}/status && echo yes || echo no`)).stdout === 'yes\n'
