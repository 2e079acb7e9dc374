//go:build linux

package crashtest

import (
	"testing"
	"time"

	"github.com/tend-run/tend/internal/torture"
	"github.com/tend-run/tend/keeper/failpoint"
)

// A role dies at each point, and at each point, while a role stands there, a
// set of roles dies at one instant: its own, others, or all. A point at which
// nobody comes by is a problem of the run.
func TestNothingIsLostAtAnyPoint(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"the role that comes by dies": false, "sets of roles die meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time it waits for roles to come by
			points := failpoint.All()
			r := play(t, torture.Config{Tend: []string{pointed}, Points: points, Together: together, Strikes: len(points) * (1 + kills(t)/50), Pause: time.Millisecond,
				Binaries: []string{pointed}})
			for _, p := range points {
				if r.Points[p.String()] == 0 {
					t.Errorf("nobody died or stood still at %s", p)
				}
			}
		})
	}
}
