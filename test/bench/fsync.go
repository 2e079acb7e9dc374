//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tend-run/tend/process"
)

// benchFsync is what each policy of fsync costs against none, on the disk of
// the state directory. Policies take turns, so that all see the same disk.
func benchFsync(ctx context.Context, e *env) (rows []row, err error) {
	policies := []process.Sync{process.SyncNone, process.SyncExit, process.SyncInterval}
	const out = int64(1 << 30)
	var starts, atOnce, rates [process.SyncInterval + 1][]float64
	for range min(e.n, 200) {
		for _, s := range policies {
			took, err := startToEnd(ctx, e.d, s, truePath)
			if err != nil {
				return rows, err
			}
			starts[s] = append(starts[s], micros(took))
		}
	}
	for range 3 {
		for _, s := range policies {
			begun := time.Now()
			const n, each = 16, 10
			if err := together(n, func() error {
				for range each {
					if _, err := startToEnd(ctx, e.d, s, truePath); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				return rows, err
			}
			atOnce[s] = append(atOnce[s], n*each/time.Since(begun).Seconds())
			took, err := startToEnd(ctx, e.d, s, ddArgs(out)...)
			if err != nil {
				return rows, err
			}
			rates[s] = append(rates[s], rate(out, took))
		}
	}
	for _, s := range policies[1:] {
		rows = append(rows,
			figure(fmt.Sprintf("fsync=%v against none: start→end of /bin/true, p50", s), "µs", median(starts[process.SyncNone]), median(starts[s])),
			figure("  p99", "µs", quantile(starts[process.SyncNone], 0.99), quantile(starts[s], 0.99)),
			figure("  16 at once", "/s", median(atOnce[process.SyncNone]), median(atOnce[s])),
			figure("  1 GiB of output until the exit is reported", "MiB/s", median(rates[process.SyncNone]), median(rates[s])))
	}
	return rows, nil
}

// startToEnd starts a program under a policy and waits until its exit is reported.
func startToEnd(ctx context.Context, d *daemon, s process.Sync, argv ...string) (time.Duration, error) {
	begun := time.Now()
	p, err := d.sdk.Start(ctx, process.Spec{Argv: argv, Retention: process.Retention{Sync: s}})
	if err != nil {
		return 0, err
	}
	r, err := p.Wait(ctx, process.Until{})
	took := time.Since(begun)
	switch {
	case err != nil:
		return 0, err
	case r.Exit == nil || r.Exit.ShellStatus() != 0:
		return 0, fmt.Errorf("%v ended with %v", argv, r.Exit)
	}
	// Its output must not be written back while the next one is measured.
	for p.Remove(ctx) != nil {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return took, nil
}

// together runs n of f and returns the first error.
func together(n int, f func() error) error {
	var wg sync.WaitGroup
	failed := make(chan error, n)
	for range n {
		wg.Go(func() { failed <- f() })
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}
