//go:build linux

package crashtest

import (
	"context"
	"os"
	"path/filepath"
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
	// The anchor tells of each end. A keeper that goes on before it ends tells of the upgrades that it refuses.
	if n := strings.Count(d.Log(), "]: keeper["); n != 1 {
		t.Errorf("%d keepers have ended; want 1", n)
	}
	if now := d.Roles()[testdaemon.Keeper]; now == keeper {
		t.Error("it was not replaced")
	}
}

// The caller of an upgrade goes away while the keeper stands still. The keeper goes on in place
// when it can, and is not replaced.
func TestAnUpgradeOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	keeper := d.Roles()[testdaemon.Keeper]
	proctest.Must(t, syscall.Kill(keeper, syscall.SIGSTOP))
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error)
	go func() {
		_, err := c.Upgrade(ctx, tend.Upgrade{Keeper: true})
		asked <- err
	}()
	proctest.Eventually(t, "the keeper's new program is there", func() bool {
		_, err := os.Stat(filepath.Join(d.StateDir(), "run", "tend-keeper")) // the first upgrade makes it
		return err == nil
	})
	cancel()
	if err := <-asked; err == nil {
		t.Error("the upgrade of a keeper that stands still has succeeded")
	}
	time.Sleep(time.Second) // in which it would be replaced
	proctest.Must(t, syscall.Kill(keeper, syscall.SIGCONT))
	proctest.Eventually(t, "it goes on in place", func() bool { return strings.Contains(d.Log(), "went on in place") })
	if now := d.Roles()[testdaemon.Keeper]; now != keeper {
		t.Errorf("keeper %d was replaced: it is %d", keeper, now)
	}
}
