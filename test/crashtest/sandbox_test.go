//go:build linux

package crashtest

import (
	"errors"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// An isolated sandbox of the SDK is copied, kept and paused, and its process continues
// behind deaths of the server and of the keeper. A machine that cannot isolate
// refuses to make one.
func TestAnIsolatedSandboxOutlivesTheRoles(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	sandbox, err := c.CreateSandbox(t.Context(), tend.SandboxSpec{Isolation: tend.IsolationFull})
	if errors.Is(err, process.ErrUnsupported) {
		return
	}
	proctest.Must(t, err)
	printed := func(s *tend.Sandbox, line string) string {
		t.Helper()
		return proctest.Value(s.Processes().Run(t.Context(), tend.Shell(line)))(t).Stdout
	}
	printed(sandbox, "echo kept > /tmp/file")
	kept := proctest.Value(sandbox.Snapshot(t.Context(), "kept"))(t)
	copies := proctest.Value(sandbox.Fork(t.Context(), 2))(t)
	from := proctest.Value(c.CreateSandbox(t.Context(), tend.SandboxSpec{Isolation: tend.IsolationFull, Snapshot: kept.ID}))(t)
	for _, s := range append(copies, from) {
		if got := printed(s, "cat /tmp/file"); got != "kept\n" {
			t.Errorf("a copy has %q", got)
		}
		proctest.Must(t, s.Destroy(t.Context()))
	}
	if all := proctest.Value(c.SandboxSnapshots(t.Context()))(t); len(all) != 1 || all[0].Name != "kept" {
		t.Errorf("snapshots: %+v", all)
	}

	cat := tend.Command("cat")
	cat.StdinPipe = true
	p := proctest.Value(sandbox.Processes().Spawn(t.Context(), cat))(t)
	defer p.Close()
	for _, role := range []string{testdaemon.Server, testdaemon.Keeper} {
		proctest.Value(p.Stdin().Write([]byte(role + "\n")))(t)
		proctest.Must(t, sandbox.Pause(t.Context()))
		proctest.Must(t, sandbox.Pause(t.Context()))
		proctest.Must(t, d.Replace(t.Context(), role))
		if _, err := sandbox.Processes().Spawn(t.Context(), tend.Command("true")); !errors.Is(err, tend.ErrSandboxPaused) {
			t.Errorf("a command in a paused sandbox: %v", err)
		}
		proctest.Must(t, sandbox.Resume(t.Context()))
	}
	proctest.Must(t, p.Stdin().Close())
	if res := proctest.Value(p.Wait(t.Context(), tend.WaitOptions{}))(t); res.Stdout != "server\nkeeper\n" || !res.Success {
		t.Errorf("behind the deaths: %q, %+v", res.Stdout, res)
	}
	proctest.Must(t, sandbox.Destroy(t.Context()))
	for range 2 {
		proctest.Must(t, c.DeleteSandboxSnapshot(t.Context(), "kept"))
	}
	if all := proctest.Value(c.Sandboxes(t.Context(), tend.SandboxFilter{}))(t); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
}
