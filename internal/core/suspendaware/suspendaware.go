// Package suspendaware measures grace periods for other processes. Time in which the whole
// machine was suspended counts almost nothing, because the others could not run either.
package suspendaware

import (
	"context"
	"sync"
	"time"
)

// step is the most that one look counts. Whoever looks pauses for much less, also on a busy
// machine.
const step = 100 * time.Millisecond

// Grace is such a time.
type Grace struct {
	left time.Duration
	last time.Time
}

// New begins a time of d.
func New(d time.Duration) *Grace { return &Grace{left: d, last: time.Now()} }

// Over reports whether the time is over. It is asked again and again, at pauses of
// milliseconds.
func (g *Grace) Over() bool { return g.overAt(time.Now()) }

func (g *Grace) overAt(now time.Time) bool {
	g.left -= min(now.Sub(g.last), step)
	g.last = now
	return g.left <= 0
}

// Context returns a context that ends with the parent or after d, then with the cause
// [context.DeadlineExceeded]. cancel ends it, and must be called.
func Context(parent context.Context, d time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	g := New(d)
	var look *time.Timer
	var mu sync.Mutex // guards look and g
	mu.Lock()
	defer mu.Unlock()
	look = time.AfterFunc(step/2, func() {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case g.Over():
			end(context.DeadlineExceeded)
		default:
			look.Reset(step / 2)
		}
	})
	return ctx, func() {
		end(nil)
		look.Stop()
	}
}
