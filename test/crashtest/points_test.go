//go:build linux

package crashtest

import (
	"slices"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/cli/torture"
	"github.com/tend-run/tend/internal/core/failpoint"
)

// At each point a role is killed; and at each point, while a role is stopped there,
// a set of roles is killed at one instant: that role, others, or all. A point that
// no role reaches is a failure.
func TestNothingIsLostAtAnyPoint(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"the role that reaches it dies": false, "sets of roles die meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time it waits until a role reaches a point
			points := slices.DeleteFunc(failpoint.All(), func(p failpoint.Point) bool { return ofSandboxes(p) })
			strikeAt(t, torture.Config{Tend: []string{pointed}, Points: points, Together: together, Strikes: len(points) * (1 + kills(t)/50)})
		})
	}
}

// ofBoxes: they are reached by who makes sandboxes. Package internal/core/client tests those of
// the keeper, and TestASandboxIsWholeOrGoneAtEachStep those of the server.
func ofSandboxes(p failpoint.Point) bool { return p >= failpoint.ContainerIntended }

func strikeAt(t *testing.T, cfg torture.Config) {
	cfg.Pause, cfg.Binaries = time.Millisecond, []string{pointed}
	r := play(t, cfg)
	for _, p := range cfg.Points {
		if r.Points[p.String()] == 0 {
			t.Errorf("no role died or was stopped at %s", p)
		}
	}
}
