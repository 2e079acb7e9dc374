package sandboxrecord

import (
	"context"
	"sync"
	"time"
)

// Clock wakes a sweeper at the next time that was set. It stores only that time: each
// sweep must set the following one.
type Clock struct {
	mu    sync.Mutex
	at    time.Time     // the next; zero: none; guarded by mu
	moved chan struct{} // has one when at was moved forward
}

// NewClock returns one with no time set.
func NewClock() *Clock { return &Clock{moved: make(chan struct{}, 1)} }

// Set adds a time. The zero time is none.
func (c *Clock) Set(t time.Time) {
	if t.IsZero() {
		return
	}
	c.mu.Lock()
	earlier := c.at.IsZero() || t.Before(c.at)
	if earlier {
		c.at = t
	}
	c.mu.Unlock()
	if earlier {
		select {
		case c.moved <- struct{}{}:
		default:
		}
	}
}

// Wait returns true at the next time that was set, and after most at the
// latest. The time is forgotten then. It returns false when ctx ends.
func (c *Clock) Wait(ctx context.Context, most time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	latest := time.Now().Add(most)
	for {
		c.mu.Lock()
		at := c.at
		if at.IsZero() || at.After(latest) {
			at = latest
		}
		left := time.Until(at)
		if left <= 0 {
			c.at = time.Time{}
		}
		c.mu.Unlock()
		if left <= 0 {
			return true
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-c.moved:
		case <-ctx.Done():
			t.Stop()
			return false
		}
		t.Stop()
	}
}
