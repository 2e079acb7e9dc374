//go:build linux

package keeper

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestARemovalWaitsForTheCallBeforeIt: what the keeper does at an exit can take seconds where the
// machine has thousands of processes, or its disk is busy.
func TestARemovalWaitsForTheCallBeforeIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes time.Duration
		ok    bool
	}{"one that takes 8 s": {8 * time.Second, true}, "one that takes an hour": {time.Hour, false}} {
		synctest.Test(t, func(t *testing.T) {
			p := &proc{}
			p.mu.Lock()
			time.AfterFunc(c.takes, func() {
				p.exited, p.final = true, true
				p.mu.Unlock()
			})
			if err := new(Keeper).forget(p); (err == nil) != c.ok {
				t.Errorf("after %s: %v", name, err)
			}
		})
	}
}
