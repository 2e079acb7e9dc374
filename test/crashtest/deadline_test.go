//go:build linux

package crashtest

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// awhile is how long no keeper runs, at least. It is longer than lateness, the timeout of
// the processes, which end themselves meanwhile.
const (
	awhile   = 2500 * time.Millisecond
	lateness = 2 * time.Second
)

// A process that ended itself before its timeout has not timed out, even if no
// keeper could see it in time.
func TestAProcessThatEndedInTimeHasNotTimedOut(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(t *testing.T, roles map[string]int){
		"while the keeper stood still": func(t *testing.T, roles map[string]int) {
			stop(t, roles[testdaemon.Keeper])
		},
		"while there was no keeper": func(t *testing.T, roles map[string]int) {
			stop(t, roles[testdaemon.Anchor]) // it would start another
			if err := syscall.Kill(roles[testdaemon.Keeper], syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serve(t)
			c := d.Connect(t)
			round := 0
			proctest.Eventually(t, "the keeper goes away before the timeouts of all are over", func() bool {
				round++
				return endUnseen(t, d, c, round, away) > 0
			})
		})
	}
}

// endUnseen starts processes that end themselves while no keeper runs, and returns how
// many did: on a machine that stands still meanwhile their keeper may be there, and end
// them at their timeout.
func endUnseen(t *testing.T, d *daemon, c *tend.Client, round int, away func(*testing.T, map[string]int)) (inTime int) {
	t.Helper()
	var all []process.Process
	var pids []int
	for i := range 20 {
		p := proctest.Start(t, c, process.Spec{ID: process.ID(fmt.Sprintf("ends-itself-%d-%d", round, i)), Shell: "sleep 0.3; kill -TERM $$", Timeout: lateness})
		all, pids = append(all, p), append(pids, proctest.Info(t, p).PID)
	}
	away(t, d.Roles())
	time.Sleep(awhile)
	for _, pid := range pids {
		gone(t, pid)
	}
	for role, pid := range d.Roles() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
	for _, p := range all {
		r := proctest.Wait(t, p, process.Until{})
		if r.Exit.Signal != int(syscall.SIGTERM) { // its keeper was there
			continue
		}
		if inTime++; r.Exit.Cause != process.CauseSignalled {
			t.Errorf("%s: %v, cause %v; want signalled", p.ID(), r.Exit, r.Exit.Cause)
		}
	}
	if !d.Settle(t.Context()) {
		t.Fatalf("not all roles came back: %v", d.Roles())
	}
	return inTime
}

func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
}
