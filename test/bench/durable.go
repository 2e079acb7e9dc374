//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/tend-run/tend"
	"github.com/tend-run/tend/process"
)

// benchUpgrade replaces keeper and server under 1,000 processes, while
// another goroutine connects all the time.
func benchUpgrade(ctx context.Context, e *env) ([]row, error) {
	const live, rounds = 1000, 5
	for range live {
		if _, err := e.d.sdk.Start(ctx, process.Spec{Argv: []string{"/bin/sleep", "3600"}}); err != nil {
			return nil, err
		}
	}
	dials := newDialer(ctx, e.d.addr)
	defer dials.stop()
	var took []float64
	for range rounds {
		if _, err := e.d.sdk.Upgrade(ctx, tend.Upgrade{}); err != nil {
			return nil, err
		}
		d, err := e.d.lastUpgrade(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, millis(d))
		if err := pause(ctx, 300*time.Millisecond); err != nil {
			return nil, err
		}
	}
	dials.stop()
	list, err := e.d.sdk.List(ctx, process.Filter{})
	if err != nil {
		return nil, err
	}
	alive := 0
	for _, info := range list {
		if info.State == process.Running {
			alive++
		}
	}
	if alive != live {
		return nil, fmt.Errorf("%d of %d processes run after the upgrades", alive, live)
	}
	return []row{
		figure("keeper upgrade with 1,000 processes, median", "ms", 0, median(took)).atMost(25).
			notes("the keeper's own clock, from standing still to going on; worst of %d: %s", rounds, number(quantile(took, 1))),
		figure("connections refused by `tend upgrade`", "", 0, float64(dials.refused)).atMost(0).
			notes("of %d; %d requests on them were cut by the end of a server", dials.made, dials.cut),
	}, nil
}

var tookPattern = regexp.MustCompile(`the last took (\S+)`)

// lastUpgrade is how long the keeper stood still, as its status says.
func (d *daemon) lastUpgrade(ctx context.Context) (time.Duration, error) {
	status, err := d.sdk.Status(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range status.Promises {
		if m := tookPattern.FindStringSubmatch(p.Detail); m != nil {
			return time.ParseDuration(m[1])
		}
	}
	return 0, errors.New("the status says nothing of an upgrade: the keeper was replaced by the way of a crash")
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
		for pause(ctx, time.Millisecond) == nil {
			c, err := dial(ctx, addr)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				d.made++
				d.refused++
			default:
				d.made++
				if _, err := c.call("GET", "/health", "", nil); err != nil && ctx.Err() == nil {
					d.cut++
				}
			}
			if err == nil {
				c.Close()
			}
		}
	})
	return d
}

func (d *dialer) stop() {
	d.cancel()
	d.done.Wait()
}

// benchReplay reads what a finished process has written, from its first byte.
func benchReplay(ctx context.Context, e *env) ([]row, error) {
	const n, rounds = 1 << 30, 3
	p, err := e.d.sdk.Start(ctx, process.Spec{Argv: ddArgs(n), Retention: process.Retention{Limit: 2 * n}})
	if err != nil {
		return nil, err
	}
	if _, err := p.Wait(ctx, process.Until{}); err != nil {
		return nil, err
	}
	info, err := p.Info(ctx)
	if err != nil {
		return nil, err
	}
	pids, err := e.d.roles(ctx)
	if err != nil {
		return nil, err
	}
	before, err := pids.cpu()
	if err != nil {
		return nil, err
	}
	c := binaryCodec()
	var rates []float64
	for range rounds {
		took, err := replayOnce(ctx, e.d, c, uint32(info.PID), n)
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate(n, took))
	}
	after, err := pids.cpu()
	if err != nil {
		return nil, err
	}
	spent := usage{}
	spent.add(before, after)
	sum, each := spent.per(rounds)
	return []row{
		figure("replay of 1 GiB from the spool, envd binary", "MiB/s", 0, median(rates)).atLeast(1024).
			notes("CPU %.2f s/GiB: %s", sum, each),
	}, p.Remove(ctx)
}

func replayOnce(ctx context.Context, d *daemon, c codec, pid uint32, n int64) (time.Duration, error) {
	on, err := dial(ctx, d.addr)
	if err != nil {
		return 0, err
	}
	defer on.Close()
	start := time.Now()
	s, err := c.connect(on.wide(), pid, "Tend-From: 0\r\n")
	if err != nil {
		return 0, err
	}
	got, err := c.drain(s)
	took := time.Since(start)
	if err == nil {
		err = expect(got, n)
	}
	return took, err
}
