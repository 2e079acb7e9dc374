package gomonitor

import (
	"testing"
	"time"
)

// A goroutine that is never idle is scheduled again more often than each 10 ms, and
// not at each of its events, which would cost as much as is saved.
func TestALoopTurnsOftenEnoughAndNotMore(t *testing.T) {
	var l Loop
	now, last := time.Now(), time.Time{}
	turns := 0
	for range 100_000 { // a second, an event each 10 µs
		if l.due(now) {
			if !last.IsZero() && now.Sub(last) >= 8*time.Millisecond {
				t.Fatalf("scheduled anew after %v", now.Sub(last))
			}
			last = now
			turns++
		}
		now = now.Add(10 * time.Microsecond)
	}
	if turns > 300 {
		t.Errorf("%d turns in a second", turns)
	}
}
