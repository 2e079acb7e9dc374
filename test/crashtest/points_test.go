//go:build linux

package crashtest

import (
	"testing"
	"time"

	"github.com/tend-run/tend/internal/torture"
	"github.com/tend-run/tend/keeper/failpoint"
)

// At each point a role is killed; and at each point, while a role is stopped there,
// a set of roles is killed at one instant: that role, others, or all. A point that
// no role reaches is a failure.
func TestNothingIsLostAtAnyPoint(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"the role that reaches it dies": false, "sets of roles die meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time it waits until a role reaches a point
			points := failpoint.All()
			r := play(t, torture.Config{Tend: []string{pointed}, Points: points, Together: together, Strikes: len(points) * (1 + kills(t)/50), Pause: time.Millisecond,
				Binaries: []string{pointed}})
			for _, p := range points {
				if r.Points[p.String()] == 0 {
					t.Errorf("no role died or was stopped at %s", p)
				}
			}
		})
	}
}
