package scope

import (
	"context"
	"sync"
	"time"

	"github.com/tend-run/tend/driver"
)

// Due wakes a sweeper at the next time that was set. It keeps that time alone: a
// sweep sets again what is due after it.
type Due struct {
	mu    sync.Mutex
	at    time.Time     // the next; zero: none; guarded by mu
	moved chan struct{} // has one when at was moved forward
}

// NewDue returns one with no time set.
func NewDue() *Due { return &Due{moved: make(chan struct{}, 1)} }

// Set adds a time. The zero time is none.
func (d *Due) Set(t time.Time) {
	if t.IsZero() {
		return
	}
	d.mu.Lock()
	earlier := d.at.IsZero() || t.Before(d.at)
	if earlier {
		d.at = t
	}
	d.mu.Unlock()
	if earlier {
		select {
		case d.moved <- struct{}{}:
		default:
		}
	}
}

// Wait returns true at the next time that was set, and after most at the
// latest. The time is forgotten then. It returns false when ctx ends.
func (d *Due) Wait(ctx context.Context, most time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	latest := time.Now().Add(most)
	for {
		d.mu.Lock()
		at := d.at
		if at.IsZero() || at.After(latest) {
			at = latest
		}
		left := time.Until(at)
		if left <= 0 {
			d.at = time.Time{}
		}
		d.mu.Unlock()
		if left <= 0 {
			return true
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-d.moved:
		case <-ctx.Done():
			t.Stop()
			return false
		}
		t.Stop()
	}
}

// Reschedule applies a change to a deadline.
func Reschedule(deadline *time.Time, c *driver.Change) {
	switch {
	case c.Deadline != nil:
		*deadline = *c.Deadline
	case c.Extend != nil && !deadline.IsZero() && c.Extend.After(*deadline):
		*deadline = *c.Extend
	}
}

// Merge returns old with the entries of change; an empty value removes one.
func Merge(old, change map[string]string) map[string]string {
	if len(change) == 0 {
		return old
	}
	merged := make(map[string]string, len(old)+len(change))
	for _, m := range []map[string]string{old, change} {
		for k, v := range m {
			if v == "" {
				delete(merged, k)
			} else {
				merged[k] = v
			}
		}
	}
	return merged
}
