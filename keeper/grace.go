//go:build linux

package keeper

import "time"

// graceStep is the most that one look counts of a grace. Whoever looks pauses for much
// less, also on a busy machine.
const graceStep = 100 * time.Millisecond

// grace is a time in which others are to do something. That in which the whole machine
// stood still counts for next to nothing: they could not do it either.
type grace struct {
	left time.Duration
	last time.Time
}

func newGrace(d time.Duration) *grace { return &grace{left: d, last: time.Now()} }

// over reports whether the time is over. It is asked again and again, at pauses of
// milliseconds.
func (g *grace) over() bool { return g.overAt(time.Now()) }

func (g *grace) overAt(now time.Time) bool {
	g.left -= min(now.Sub(g.last), graceStep)
	g.last = now
	return g.left <= 0
}
