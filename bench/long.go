//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// longStream is what one reader is sent. It is many times what is kept of a
// stream that is read, so most of it is freed again on the way; and more than the
// kernel holds in memory before it makes writers wait for the disk.
const longStream = 16 << 30

// ordinaryLong measures whether a stream keeps its speed. The direct way and the
// floor keep nothing, so a quarter of the length shows what they do.
func ordinaryLong(ctx context.Context, e *env, all subjects) {
	var direct, gibs []float64 // gibs is the speed of each GiB through tend
	var at results
	var whole string
	all.inTurns(1, func() { direct = zeroRate(ctx, nil, longStream/4, false, nil, direct) }, func(i int, t *ordinary) {
		n, seen := int64(longStream), func(int64) {}
		if i == atFloor {
			n /= 4
		}
		if i == atTend {
			before := e.spent(ctx)
			defer func() { whole = e.spent(ctx).since(before, longStream>>30) }()
			last, mark := time.Now(), int64(1<<30)
			seen = func(got int64) {
				if got >= mark {
					gibs = append(gibs, rate(1<<30, time.Since(last)))
					last, mark = time.Now(), mark+1<<30
				}
			}
		}
		at[i] = zeroRate(ctx, t, n, false, seen, at[i])
	})
	n := len(gibs)
	quarters := []float64{median(slices.Clone(gibs[:n/4])), median(slices.Clone(gibs[n/4 : n/2])), median(slices.Clone(gibs[n/2 : 3*n/4])), median(slices.Clone(gibs[3*n/4:]))}
	e.add(
		compared("Ordinary client: 16 GiB out, binary", "MiB/s", direct, &at, median).atLeast(800).
			notes("each quarter: %.0f, %.0f, %.0f, %.0f; CPU s/GiB: %s", quarters[0], quarters[1], quarters[2], quarters[3], whole),
		figure("  its slowest GiB", "MiB/s", 0, quantile(gibs, 0)),
	)
}

// spending is processor time used by now: by the roles, this client, and
// everything on the machine.
type spending struct {
	roles       usage
	client, all time.Duration
}

func (e *env) spent(ctx context.Context) (s spending) {
	s.roles = e.d.roles(ctx).cpu()
	var self syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &self))
	s.client = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	s.all = time.Duration(busyTicks()) * procfs.Tick
	return s
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
