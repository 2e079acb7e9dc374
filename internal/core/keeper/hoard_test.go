//go:build linux

package keeper

import (
	"testing"

	"github.com/tend-run/tend/internal/core/container"
)

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
		{320, true}, {359, false}, {360, true},
		{8000, true}, {8063, false}, {8064, true}, // a large slab hides no large hoard
	} {
		if got := g.grown(step.now * mib); got != step.tell {
			t.Errorf("step %d, at %d MiB: %t", i, step.now, got)
		}
	}
	if held, known := slab(); !known || held < mib {
		t.Errorf("this kernel holds %d bytes, %t", held, known)
	}
}

// TestAContainerThatIsHeldIsLookedAtLater: the slab may not grow again until then.
func TestAContainerThatIsHeldIsLookedAtLater(t *testing.T) {
	b := &heldContainer{}
	b.mu.Lock()
	k := &Keeper{containers: containers{all: map[container.ID]*heldContainer{"held": b}}}
	if k.lookAtHoards() {
		t.Error("it was looked at while it was held")
	}
	b.mu.Unlock()
	if !k.lookAtHoards() {
		t.Error("it is free, and was not looked at")
	}
}
