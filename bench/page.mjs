// Times what somebody who looks at the page waits for, in headless Chromium: page.mjs DIR
// DIR has playwright-core. It answers each line of stdin with one of JSON:
//   paint URL ROUNDS            first paint, and until the overview is there
//   open URL ID LAST ROUNDS     from a click in the overview until a log shows its last line
//   follow URL FROM SECONDS     what it costs to follow a log, from a time after its opening on
//   last URL TEXT               waits until the log that is followed shows this line
import http from 'node:http'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const { chromium } = createRequire(`${process.argv[2]}/`)('playwright-core')
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] })

// A server of a page that is one word.
const server = http.createServer((_, answer) => void answer.setHeader('Content-Type', 'text/html').end('<!doctype html><title>words</title><p>words'))
await new Promise((ok) => server.listen(0, '127.0.0.1', ok))
const words = `http://127.0.0.1:${server.address().port}/`

/** A browser that has seen nothing yet. */
async function fresh() {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } })
  context.setDefaultTimeout(120_000)
  return context
}

// In the page, from its beginning on: when the overview shows a process.
const watch = () => {
  window.there = new Promise((ok) => {
    const look = () => document.querySelector('.row.item') && ok(performance.now())
    new MutationObserver(look).observe(document, { childList: true, subtree: true })
  })
}

// The paint of what has content, by the browser's own account.
const painted = () =>
  new Promise((ok) => {
    new PerformanceObserver((list) => list.getEntriesByName('first-contentful-paint').forEach((e) => ok(e.startTime))).observe({ type: 'paint', buffered: true })
  })

async function paint(url, rounds) {
  const took = { words: [], first: [], there: [], again: [] }
  for (let n = 0; n < rounds; n++) {
    const context = await fresh()
    const page = await context.newPage()
    await page.goto(words)
    took.words.push(await page.evaluate(painted))
    await page.close()
    for (const first of [took.first, took.again]) {
      const page = await context.newPage()
      await page.addInitScript(watch)
      await page.goto(`${url}/ui/`)
      first.push(await page.evaluate(painted))
      const there = await page.evaluate(() => window.there)
      if (first === took.first) took.there.push(there)
      await page.close()
    }
    await context.close()
  }
  return took
}

async function open(url, id, last, rounds) {
  const took = []
  for (let n = 0; n < rounds; n++) {
    const context = await fresh()
    const page = await context.newPage()
    await page.goto(`${url}/ui/`)
    await page.waitForSelector(`.row.item a[href^="/ui/p/${id}"]`)
    took.push(
      await page.evaluate(
        ([id, last]) =>
          new Promise((ok) => {
            const look = () => {
              const line = document.querySelector('.scroll .lines')?.lastElementChild?.querySelector('.text')
              if (line?.textContent.startsWith(last)) ok(performance.now() - begin)
            }
            new MutationObserver(look).observe(document, { childList: true, subtree: true })
            const begin = performance.now()
            document.querySelector(`.row.item a[href^="/ui/p/${id}"]`).click()
          }),
        [id, last],
      ),
    )
    await context.close()
  }
  return took
}

let followed // the page that follows

async function follow(url, from, seconds) {
  const context = await fresh()
  const page = (followed = await context.newPage())
  const devtools = await context.newCDPSession(page)
  await devtools.send('Performance.enable')
  const frames = (ms) =>
    page.evaluate(
      (ms) =>
        new Promise((ok) => {
          const ages = []
          let n = 0
          let begin
          let before
          let longest = 0
          const frame = (now) => {
            if (begin === undefined) begin = now
            else {
              n++
              longest = Math.max(longest, now - before)
            }
            before = now
            const text = document.querySelector('.scroll .lines')?.lastElementChild?.querySelector('.text')?.textContent ?? ''
            if (text.length > 26) ages.push(Date.now() - Number(text.slice(13, 26)))
            if (now - begin < ms) requestAnimationFrame(frame)
            else ok({ rate: (1000 * n) / (now - begin), longest, ages })
          }
          requestAnimationFrame(frame)
        }),
      ms,
    )
  // What is held after all garbage is gone, and the processor time of the page's own process.
  const held = async () => {
    await devtools.send('HeapProfiler.collectGarbage')
    const { metrics } = await devtools.send('Performance.getMetrics')
    const of = (name) => metrics.find((m) => m.name === name).value
    return { heap: of('JSHeapUsedSize'), nodes: of('Nodes'), cpu: of('ProcessTime'), script: of('ScriptDuration'), layout: of('LayoutDuration') + of('RecalcStyleDuration'), task: of('TaskDuration') }
  }
  await page.goto('about:blank')
  const nothing = await frames(2000)
  await page.goto(url)
  await page.waitForSelector('.scroll .line')
  await page.waitForTimeout(1000 * from)
  const before = await held()
  const begin = Date.now()
  const seen = await frames(1000 * seconds)
  const after = await held()
  return { nothing: nothing.rate, ...seen, before, after, seconds: (Date.now() - begin) / 1000 }
}

async function last(text) {
  await followed.waitForFunction((text) => document.querySelector('.scroll .lines')?.lastElementChild?.querySelector('.text')?.textContent.startsWith(text), text)
  await followed.context().close()
  return null
}

for await (const line of createInterface({ input: process.stdin })) {
  const [what, ...args] = line.split(' ')
  const answer = await { paint: () => paint(args[0], Number(args[1])), open: () => open(args[0], args[1], args[2], Number(args[3])), follow: () => follow(args[0], Number(args[1]), Number(args[2])), last: () => last(args[0]) }[what]()
  console.log(JSON.stringify(answer))
}
await browser.close()
process.exit(0) // connections to the server of words are kept alive
