// Package backoff implements pauses, and polling where no event reports a change, as in tests.
// Polling too often takes CPU from the awaited work; polling too rarely notices it late.
package backoff

import (
	"context"
	"time"
)

const (
	shortest = 2 * time.Millisecond
	longest  = 50 * time.Millisecond
)

// Next is the pause before another look by somebody who has waited since then: an eighth
// of that time, 2 to 50 ms.
func Next(since time.Time) time.Duration {
	return min(max(time.Since(since)/8, shortest), longest)
}

// Wait waits for d; false: ctx has ended before.
func Wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
