package gomonitor

import (
	"runtime"
	"time"
)

// Loop is for a goroutine that waits in blocking system calls over and over.
// Go's monitor thinks that it has run for too long when it was not scheduled for
// 10 ms, whatever it did, and then takes its processor at each look. With all
// processors idle the monitor sleeps, and the next event has to wake it: one
// wake-up and some switches more for each event. The zero value is ready.
type Loop struct{ turned time.Time }

// turnEvery is below the monitor's 10 ms.
const turnEvery = 4 * time.Millisecond

// Turn yields the goroutine if that is due. Call it before each wait.
func (l *Loop) Turn() {
	if l.due(time.Now()) {
		runtime.Gosched()
	}
}

func (l *Loop) due(now time.Time) bool {
	if now.Sub(l.turned) < turnEvery {
		return false
	}
	l.turned = now
	return true
}
