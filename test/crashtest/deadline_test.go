//go:build linux

package crashtest

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/internal/testdaemon"
	"github.com/tend-run/tend/process"
)

// awhile is how long no keeper runs. It is longer than lateness, the timeout of
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
			var all []process.Process
			for i := range 20 {
				p := scene.Start(t, c, process.Spec{ID: process.ID(fmt.Sprintf("ends-itself-%d", i)), Shell: "sleep 0.3; kill -TERM $$", Timeout: lateness})
				all = append(all, p)
			}
			away(t, d.Roles())
			time.Sleep(awhile)
			for role, pid := range d.Roles() {
				if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
					t.Errorf("%s: %v", role, err)
				}
			}
			inTime := 0
			for _, p := range all {
				r := scene.Wait(t, p, process.Until{})
				if r.Exit.Signal != int(syscall.SIGTERM) { // a slow machine
					continue
				}
				if inTime++; r.Exit.Cause != process.CauseSignalled {
					t.Errorf("%s: %v, cause %v; want signalled", p.ID(), r.Exit, r.Exit.Cause)
				}
			}
			if inTime == 0 {
				t.Error("no process ended in time: the test proves nothing")
			}
		})
	}
}

func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
}
