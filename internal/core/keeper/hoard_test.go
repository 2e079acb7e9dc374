//go:build linux

package keeper

import "testing"

// TestAGaugeTellsWhatGrew: by steps, slowly, after less, and of much in larger steps.
func TestAGaugeTellsWhatGrew(t *testing.T) {
	const mib = 1 << 20
	var g gauge
	for i, step := range []struct {
		now  int64
		tell bool
	}{
		{100, true}, // the first look
		{100, false}, {110, false}, {115, false}, {116, true}, {116, false}, {131, false}, {132, true},
		{50, false}, {65, false}, {66, true},
		{1000, true}, {1100, false}, {1124, false}, {1125, true},
	} {
		if got := g.grown(step.now * mib); got != step.tell {
			t.Errorf("step %d, at %d MiB: %t", i, step.now, got)
		}
	}
	if held, known := slab(); !known || held < mib {
		t.Errorf("this kernel holds %d bytes, %t", held, known)
	}
}
