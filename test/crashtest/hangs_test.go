//go:build linux

package crashtest

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

// Who removes a process that is not over hears for whom that waits; and a run that hangs
// shows all processes of the daemon and what its keeper does.
func TestWhatARemovalWaitsForIsSaid(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	p := proctest.Start(t, c, process.Spec{Shell: "sleep 1000 >/dev/null 2>&1 & exit 2"})
	proctest.WantExit(t, p, 2)
	err := p.Remove(t.Context())
	if left, ok := errors.AsType[*process.UnfinishedError](err); !ok || !errors.Is(err, process.ErrRunning) || !strings.Contains(left.Left, "(sleep) of its tree runs") {
		t.Errorf("removed with %v; want that it waits for a sleep", err)
	}
	cmd := exec.Command(bin, "--url", d.URL, "rm", "--finished")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), string(p.ID())+": the process has exited, and is not over: pid ") || !strings.Contains(string(out), "0 removed") {
		t.Errorf("tend rm --finished: %q, %v; want what is left of the process", out, err)
	}
	roles := d.Roles()
	all := d.Processes()
	for name, pid := range roles {
		if !strings.Contains(all, fmt.Sprintf("%d %s ", pid, name)) {
			t.Errorf("the %s[%d] is not among them:\n%s", name, pid, all)
		}
	}
	if !strings.Contains(all, "sleep S, for ") {
		t.Errorf("the descendant is not among them:\n%s", all)
	}
	d.Dump(testdaemon.Keeper)
	if log := d.Log(); !strings.Contains(log, "keeper.(*Keeper).Run") && !strings.Contains(log, "keeper.Run(") {
		t.Errorf("the keeper said nothing of what it does:\n%s", log)
	}
	if res, err := p.Kill(t.Context()); err != nil || !res.Verified {
		t.Errorf("killed with %+v, %v", res, err)
	}
	proctest.Must(t, p.Remove(t.Context()))
}
