//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tend-run/tend/process"
)

// benchFsync is what each policy of fsync costs against none, on the disk of
// the state directory. Policies take turns, so that all see the same disk.
func benchFsync(ctx context.Context, e *env) {
	policies := []process.Sync{process.SyncNone, process.SyncExit, process.SyncInterval}
	const out = int64(1 << 30)
	var starts, atOnce, rates [process.SyncInterval + 1][]float64
	for range min(e.n, 200) {
		for _, s := range policies {
			starts[s] = append(starts[s], micros(startToEnd(ctx, e.d, s, truePath)))
		}
	}
	for range 3 {
		for _, s := range policies {
			const n, each = 16, 10
			took := timed(func() {
				together(n, func(int) {
					for range each {
						startToEnd(ctx, e.d, s, truePath)
					}
				})
			})
			atOnce[s] = append(atOnce[s], n*each/took.Seconds())
			rates[s] = append(rates[s], rate(out, startToEnd(ctx, e.d, s, ddArgs(out)...)))
		}
	}
	for _, s := range policies[1:] {
		e.add(
			figure(fmt.Sprintf("fsync=%v against none: start→end of /bin/true, p50", s), "µs", median(starts[process.SyncNone]), median(starts[s])),
			figure("  p99", "µs", quantile(starts[process.SyncNone], 0.99), quantile(starts[s], 0.99)),
			figure("  16 at once", "/s", median(atOnce[process.SyncNone]), median(atOnce[s])),
			figure("  1 GiB of output until the exit is reported", "MiB/s", median(rates[process.SyncNone]), median(rates[s])))
	}
}

// startToEnd starts a program under a policy and waits until its exit is reported.
func startToEnd(ctx context.Context, d *daemon, s process.Sync, argv ...string) time.Duration {
	begun := time.Now()
	p := must(d.sdk.Start(ctx, process.Spec{Argv: argv, Retention: process.Retention{Sync: s}}))
	r := must(p.Wait(ctx, process.Until{}))
	took := time.Since(begun)
	if r.Exit == nil || r.Exit.ShellStatus() != 0 {
		fail("%v ended with %v", argv, r.Exit)
	}
	// Its output must not be written back while the next one is measured.
	for p.Remove(ctx) != nil {
		pause(ctx, time.Millisecond)
	}
	return took
}
