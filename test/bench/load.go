//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/procfs"
)

// othersBusy returns how many cores other programs use while this one waits.
func othersBusy(ctx context.Context) (float64, error) {
	const span = 500 * time.Millisecond
	before, err := busyTicks()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, span); err != nil {
		return 0, err
	}
	after, err := busyTicks()
	return float64(after-before) * float64(procfs.Tick) / float64(span), err
}

// busyTicks sums user, nice and system of all cores: the first three fields of
// /proc/stat.
func busyTicks() (sum int64, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b))
	if len(f) < 4 || f[0] != "cpu" {
		return 0, errors.New("/proc/stat does not begin with cpu")
	}
	for _, s := range f[1:4] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
