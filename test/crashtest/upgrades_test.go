//go:build linux

package crashtest

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// Several upgrades of a keeper that stands still replace it once. Each gives up at another time,
// and would kill the keeper that has come in its place.
func TestUpgradesReplaceAKeeperThatStandsStillOnce(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	keeper := d.Roles()[testdaemon.Keeper]
	proctest.Must(t, syscall.Kill(keeper, syscall.SIGSTOP))
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			if _, err := c.Upgrade(t.Context(), tend.Upgrade{Keeper: true}); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(50 * time.Millisecond)
	}
	wg.Wait()
	if n := strings.Count(d.Log(), "keeper["); n != 1 {
		t.Errorf("%d keepers have ended; want 1", n)
	}
	if now := d.Roles()[testdaemon.Keeper]; now == keeper {
		t.Error("it was not replaced")
	}
}
