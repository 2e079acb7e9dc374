package daemon

import "testing"

// A server on a small machine, or in a small container, holds less for its clients.
func TestWhatMayBeHeldFollowsTheMemory(t *testing.T) {
	for memory, want := range map[int64]int64{0: 512 << 20, 64 << 20: 32 << 20, 256 << 20: 64 << 20, 1 << 30: 256 << 20, 64 << 30: 512 << 20} {
		if got := inFlight(memory); got != want {
			t.Errorf("with %d MiB of memory %d MiB may be held; want %d", memory>>20, got>>20, want>>20)
		}
	}
}
