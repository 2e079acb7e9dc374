//go:build linux

package main

import (
	"context"
	"regexp"
	"sync"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// benchUpgrade replaces keeper and server under 1,000 processes, while
// another goroutine connects all the time.
func benchUpgrade(ctx context.Context, e *env) {
	const live, rounds = 1000, 5
	for range live {
		must(e.d.sdk.Start(ctx, process.Spec{Argv: []string{"/bin/sleep", "3600"}}))
	}
	dials := newDialer(ctx, e.d.addr)
	defer dials.stop()
	var took []float64
	for range rounds {
		must(e.d.sdk.Upgrade(ctx, tend.Upgrade{}))
		took = append(took, millis(e.d.lastUpgrade(ctx)))
		pause(ctx, 300*time.Millisecond)
	}
	dials.stop()
	alive := 0
	for _, info := range must(e.d.sdk.List(ctx, process.Filter{})) {
		if info.State == process.Running {
			alive++
		}
	}
	if alive != live {
		fail("%d of %d processes run after the upgrades", alive, live)
	}
	e.add(
		figure("keeper upgrade with 1,000 processes, median", "ms", 0, median(took)).atMost(25).
			notes("the keeper's own clock, from standing still to going on; worst of %d: %s", rounds, number(quantile(took, 1))),
		figure("connections refused by `tend upgrade`", "", 0, float64(dials.refused)).atMost(0).
			notes("of %d; %d requests on them were cut by the end of a server", dials.made, dials.cut),
	)
}

var tookPattern = regexp.MustCompile(`the last took (\S+)`)

// lastUpgrade is how long the keeper stood still, as its status says.
func (d *daemon) lastUpgrade(ctx context.Context) time.Duration {
	for _, p := range must(d.sdk.Status(ctx)).Promises {
		if m := tookPattern.FindStringSubmatch(p.Detail); m != nil {
			return must(time.ParseDuration(m[1]))
		}
	}
	fail("the status says nothing of an upgrade: the keeper was replaced by the way of a crash")
	return 0
}

// dialer makes connections and asks /health on each, until it is stopped.
type dialer struct {
	cancel             context.CancelFunc
	done               sync.WaitGroup
	made, refused, cut int // to be read after stop
}

func newDialer(ctx context.Context, addr string) *dialer {
	ctx, cancel := context.WithCancel(ctx)
	d := &dialer{cancel: cancel}
	d.done.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			var c *conn
			err := caught(func() { c = dial(ctx, addr) })
			if ctx.Err() == nil {
				d.made++
			}
			if err != nil {
				if ctx.Err() == nil {
					d.refused++
				}
				continue
			}
			if caught(func() { c.call("GET", "/health", "", nil) }) != nil && ctx.Err() == nil {
				d.cut++
			}
			c.Close()
		}
	})
	return d
}

func (d *dialer) stop() {
	d.cancel()
	d.done.Wait()
}

// benchReplay reads what a finished process has written, from its first byte.
func benchReplay(ctx context.Context, e *env) {
	const n, rounds = 1 << 30, 3
	p := must(e.d.sdk.Start(ctx, process.Spec{Argv: ddArgs(n), Retention: process.Retention{Limit: 2 * n}}))
	must(p.Wait(ctx, process.Until{}))
	info := must(p.Info(ctx))
	c, spent := binaryCodec(), usage{}
	var rates []float64
	spent.during(e.d.roles(ctx), func() {
		for range rounds {
			rates = append(rates, rate(n, replayOnce(ctx, e.d, c, uint32(info.PID), n)))
		}
	})
	sum, each := spent.per(rounds)
	e.add(figure("replay of 1 GiB from the spool, envd binary", "MiB/s", 0, median(rates)).atLeast(1024).notes("CPU %.2f s/GiB: %s", sum, each))
	check(p.Remove(ctx))
}

func replayOnce(ctx context.Context, d *daemon, c codec, pid uint32, n int64) time.Duration {
	on := dial(ctx, d.addr)
	defer on.Close()
	return timed(func() { expect(c.drain(c.connect(on.wide(), pid, "Tend-From: 0\r\n")), n) })
}
