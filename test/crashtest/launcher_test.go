//go:build linux

package crashtest

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

// The launcher dies and nothing stops; the next `tend serve` takes its place,
// with the same listening socket, and holds the mirror again: anchor and keeper
// may die at one instant then.
func TestTheNextServeTakesTheKilledLaunchersPlace(t *testing.T) {
	t.Parallel()
	ctx, d, c := begin(t, 2*time.Minute)
	const n, code = 8 << 20, 7
	p := proctest.Start(t, c, process.Spec{Argv: []string{self, workArgument, "write", strconv.Itoa(n), "150ms", strconv.Itoa(code)}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if got, e := outputOf(ctx, t, p); got != n || e == nil || e.Code != code {
			t.Errorf("%d bytes, %+v; want %d and code %d", got, e, n, code)
		}
	}()
	defer func() { <-done }()
	for range 2 {
		before := d.Roles()
		d.KillLauncher()
		if _, err := c.Status(ctx); err != nil {
			t.Errorf("without a launcher: %v", err)
		}
		proctest.Must(t, d.ServeAgain())
		after := d.Roles()
		for _, role := range []string{testdaemon.Anchor, testdaemon.Keeper} {
			if before[role] != after[role] {
				t.Errorf("%s[%d] is %d now: a new launcher needs no new one", role, before[role], after[role])
			}
		}
		for { // until the mirror has everything
			st := proctest.Value(c.Status(ctx))(t)
			if st.Promises["processes_survive_anchor_and_keeper"].Kept {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		for _, role := range []string{testdaemon.Anchor, testdaemon.Keeper} {
			if err := syscall.Kill(after[role], syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		proctest.Value(c.Status(ctx))(t)
	}
}
