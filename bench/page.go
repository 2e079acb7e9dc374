//go:build linux

package main

import (
	"context"
	"math"
	"syscall"

	"github.com/tend-run/tend/process"
)

// pageProgram installs playwright-core, looks for Chromium, and becomes page.mjs.
const pageProgram = `(scripts/npm-ci sdk; scripts/install chromium=chromium) >&2; exec "$(scripts/node)/node" bench/page.mjs "$PWD/sdk/web"`

// browser runs f with headless Chromium.
func browser(ctx context.Context, e *env, f func(b *clientProgram)) {
	b := startProgram(ctx, e, pageProgram)
	defer b.close()
	f(b)
}

// benchPagePaint opens the overview in browsers that have seen nothing yet, and once more
// in each.
func benchPagePaint(ctx context.Context, e *env) {
	const rounds = 15
	must(e.d.sdk.Start(ctx, process.Spec{Argv: []string{"/bin/sleep", "3600"}, Name: "something"}))
	browser(ctx, e, func(b *clientProgram) {
		var took struct{ Words, First, There, Again []float64 }
		b.ask(&took, "paint %s 1\n", e.d.url) // warms daemon and browser up
		b.ask(&took, "paint %s %d\n", e.d.url, rounds)
		e.add(
			figure("Page: first paint, nothing in the browser's cache, p50", "ms", median(took.Words), median(took.First)).atMost(150).
				notes("bare: a page of one word, from another server; the worst of %d: %s; files in the cache: %s", rounds, number(quantile(took.First, 1)), number(median(took.Again))),
			figure("  until the overview shows a process, p50", "ms", median(took.Words), median(took.There)).notes("worst: %s", number(quantile(took.There, 1))),
		)
	})
}

// benchPageLog opens a log of a gigabyte from the overview, in browsers that have shown
// no log yet.
func benchPageLog(ctx context.Context, e *env) {
	const size, rounds = int64(1 << 30), 15
	lines := size / pouredLine
	p := must(e.d.sdk.Start(ctx, process.Spec{Argv: pouring(lines, 0), Name: "big", Retention: process.Retention{Limit: 2 * size}}))
	ended(ctx, p)
	browser(ctx, e, func(b *clientProgram) {
		var took []float64
		b.ask(&took, "open %s %s %012d 1\n", e.d.url, p.ID(), lines-1)
		b.ask(&took, "open %s %s %012d %d\n", e.d.url, p.ID(), lines-1, rounds)
		e.add(figure("Page: a log of 1 GiB opened at its end, p50", "ms", 0, median(took)).atMost(200).
			notes("from the click in the overview until its last line is in the document; worst of %d: %s", rounds, number(quantile(took, 1))))
	})
}

// ended waits until a process has ended well.
func ended(ctx context.Context, p process.Process) *process.Exit {
	res := must(p.Wait(ctx, process.Until{}))
	if res.Exit == nil || res.Exit.Code != 0 {
		fail("the process ended with %v", res.Exit)
	}
	return res.Exit
}

// held is what the page's process of the browser holds and has used by then, after a
// collection of garbage: bytes, and seconds of its thread.
type held struct{ Heap, Nodes, CPU, Script, Layout, Task float64 }

// benchPageFollow looks at a log that grows by 10 MB a second.
func benchPageFollow(ctx context.Context, e *env) {
	const perSecond, from, seconds = 10_000_000, 5, 20
	browser(ctx, e, func(b *clientProgram) {
		p := must(e.d.sdk.Start(ctx, process.Spec{Argv: pouring(math.MaxInt64, perSecond)}))
		var seen struct {
			Nothing, Rate, Longest float64
			Ages                   []float64
			Seconds                float64
			Before, After          held
		}
		b.ask(&seen, "follow %s/ui/p/%s %d %d\n", e.d.url, p.ID(), from, seconds)
		check(p.Signal(ctx, int(syscall.SIGTERM), process.ScopeLeader))
		ended(ctx, p)
		wrote := must(p.Info(ctx)).Streams[0].End
		b.ask(nil, "last %012d\n", wrote/pouredLine-1)
		spent := func(of func(h held) float64) float64 {
			return 100 * (of(seen.After) - of(seen.Before)) / seen.Seconds
		}
		e.add(
			figure("Page: growth of its heap while it follows 10 MB/s, from 5 s to 25 s", "MiB", 0, math.Max(0, seen.After.Heap-seen.Before.Heap)/mib).atMost(1).
				notes("%.1f, then %.1f MiB; %.0f, then %.0f nodes; the last line is right", seen.Before.Heap/mib, seen.After.Heap/mib, seen.Before.Nodes, seen.After.Nodes),
			figure("  frames", "a second", seen.Nothing, seen.Rate).ratioAtLeast(0.95).
				notes("bare: an empty page, the log being written; the longest frame: %.0f ms; of a core: scripts %.0f %%, layout %.0f %%, its process %.0f %%", seen.Longest,
					spent(func(h held) float64 { return h.Script }), spent(func(h held) float64 { return h.Layout }), spent(func(h held) float64 { return h.CPU })),
			figure("  age of the newest line that is shown, p50", "ms", 0, median(seen.Ages)).notes("p99 %.0f", quantile(seen.Ages, 0.99)),
		)
	})
}
