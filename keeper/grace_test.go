//go:build linux

package keeper

import (
	"testing"
	"time"
)

func TestAGraceOutlastsAMachineThatStandsStill(t *testing.T) {
	g := newGrace(time.Second)
	at := g.last
	if at = at.Add(time.Hour); g.overAt(at) {
		t.Error("an hour in which nobody looked ended it")
	}
	for n := range 900 / 5 {
		if at = at.Add(5 * time.Millisecond); g.overAt(at) != (n == 900/5-1) {
			t.Fatalf("over after %d looks: %v", n+1, !g.overAt(at))
		}
	}
}
