package watch

import "time"

// longest is how long changes may follow each other until they are told.
const longest = 10 * time.Second

// burst makes one of changes that follow each other closely.
type burst struct {
	delay time.Duration
	quiet *time.Timer // receives once nothing more has changed for the delay
	first string      // what has changed first; "": nothing
	since time.Time
}

func newBurst(delay time.Duration) *burst {
	b := &burst{delay: delay, quiet: time.NewTimer(0)}
	b.quiet.Stop()
	return b
}

// note adds a change; "" is none.
func (b *burst) note(name string) {
	if name == "" {
		return
	}
	if b.first == "" {
		b.first, b.since = name, time.Now()
	}
	b.quiet.Reset(max(0, min(b.delay, longest-time.Since(b.since))))
}

// over returns what has changed first, and begins the next burst.
func (b *burst) over() (first string) {
	first, b.first = b.first, ""
	return first
}
