//go:build linux

package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// othersBusy returns how many cores other programs use while this one waits.
func othersBusy(ctx context.Context) float64 {
	const span = 500 * time.Millisecond
	before := busyTicks()
	pause(ctx, span)
	return float64(busyTicks()-before) * float64(procfs.Tick) / float64(span)
}

// busyTicks sums user, nice and system of all cores: the first three fields of
// /proc/stat.
func busyTicks() (sum int64) {
	f := strings.Fields(string(must(os.ReadFile("/proc/stat"))))
	if len(f) < 4 || f[0] != "cpu" {
		fail("/proc/stat does not begin with cpu")
	}
	for _, s := range f[1:4] {
		sum += must(strconv.ParseInt(s, 10, 64))
	}
	return sum
}
