//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/procfs"
)

// longStream is what one reader is sent. It is many times what is kept of a
// stream that is read, so most of it is freed again on the way; and more than the
// kernel holds in memory before it makes writers wait for the disk.
const longStream = 16 << 30

// ordinaryLong measures whether a stream keeps its speed. The direct way and the
// floor keep nothing, so a quarter of the length shows what they do.
func ordinaryLong(ctx context.Context, e *env, all subjects) ([]row, error) {
	var direct, gibs []float64 // gibs is the speed of each GiB through tend
	var at results
	var whole string
	timed := func(into *[]float64, t *ordinary, n int64, seen func(int64)) error {
		start := time.Now()
		err := zeros(ctx, t, n, false, seen)
		*into = append(*into, rate(n, time.Since(start)))
		return err
	}
	err := all.inTurns(1, func() error { return timed(&direct, nil, longStream/4, nil) }, func(i int, t *ordinary) error {
		switch i {
		case atFloor:
			return timed(&at[i], t, longStream/4, nil)
		case atBeside:
			return timed(&at[i], t, longStream, nil)
		}
		before, err := e.spent(ctx)
		if err != nil {
			return err
		}
		last, mark := time.Now(), int64(1<<30)
		if err := timed(&at[i], t, longStream, func(got int64) {
			if got >= mark {
				gibs = append(gibs, rate(1<<30, time.Since(last)))
				last, mark = time.Now(), mark+1<<30
			}
		}); err != nil {
			return err
		}
		after, err := e.spent(ctx)
		whole = after.since(before, longStream>>30)
		return err
	})
	if err != nil {
		return nil, err
	}
	n := len(gibs)
	quarters := []float64{median(slices.Clone(gibs[:n/4])), median(slices.Clone(gibs[n/4 : n/2])), median(slices.Clone(gibs[n/2 : 3*n/4])), median(slices.Clone(gibs[3*n/4:]))}
	return []row{
		compared("Ordinary client: 16 GiB out, binary", "MiB/s", direct, &at, median).atLeast(800).
			notes("each quarter: %.0f, %.0f, %.0f, %.0f; CPU s/GiB: %s", quarters[0], quarters[1], quarters[2], quarters[3], whole),
		figure("  its slowest GiB", "MiB/s", 0, quantile(gibs, 0)),
	}, nil
}

// spending is processor time used by now: by the roles, this client, and
// everything on the machine.
type spending struct {
	roles       usage
	client, all time.Duration
}

func (e *env) spent(ctx context.Context) (s spending, err error) {
	r, err := e.d.roles(ctx)
	if err != nil {
		return s, err
	}
	if s.roles, err = r.cpu(); err != nil {
		return s, err
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return s, err
	}
	s.client = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	ticks, err := busyTicks()
	s.all = time.Duration(ticks) * procfs.Tick
	return s, err
}

// since returns the seconds a unit of each. The rest is
// the program's, the kernel's threads', and that of others on the machine.
func (s spending) since(before spending, units float64) string {
	used := usage{}
	used.add(before.roles, s.roles)
	client, rest := s.client-before.client, s.all-before.all
	rest -= client
	for _, v := range used {
		rest -= v
	}
	_, each := used.per(units)
	return fmt.Sprintf("client %.2f, %s, the program and the kernel's threads %.2f", client.Seconds()/units, each, rest.Seconds()/units)
}
