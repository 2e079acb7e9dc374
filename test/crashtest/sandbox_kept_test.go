//go:build linux

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// keptSandbox is a sandbox with a process that answers lines until it reads "end", and one
// that has ended.
type keptSandbox struct {
	sandbox    *tend.Sandbox
	id         string
	cat, ended string // processes
}

// keepSandbox makes one; false: the machine cannot.
func keepSandbox(t *testing.T, c *tend.Client) (in keptSandbox, ok bool) {
	t.Helper()
	sandbox, err := c.CreateSandbox(t.Context(), tend.SandboxSpec{Isolation: tend.IsolationFull, Name: "kept"})
	if errors.Is(err, process.ErrUnsupported) {
		return in, false
	}
	proctest.Must(t, err)
	in.sandbox, in.id = sandbox, proctest.Value(sandbox.ID(t.Context()))(t)
	inside := proctest.Value(sandbox.Client(t.Context()))(t)
	ended := proctest.Start(t, inside, process.Spec{Shell: "echo was here; echo kept > /root/file; exit 3"})
	proctest.WantExit(t, ended, 3)
	cat := proctest.Start(t, inside, process.Spec{Shell: `while read x; do echo "got $x"; [ "$x" = end ] && exit 5; done`, Stdin: process.StdinPipe})
	proctest.Write(t, cat, "before\n")
	proctest.Wait(t, cat, process.Until{Match: "got before"})
	in.cat, in.ended = string(cat.ID()), string(ended.ID())
	return in, true
}

// goesOn checks that all of it is there as it was, and ends it.
func (in keptSandbox) goesOn(t *testing.T, c *tend.Client) {
	t.Helper()
	all := proctest.Value(c.Sandboxes(t.Context(), tend.SandboxFilter{}))(t)
	if len(all) != 1 || all[0].ID != in.id || all[0].State != tend.SandboxReady {
		t.Fatalf("there is %+v; want %s", all, in.id)
	}
	sandbox := proctest.Value(c.Sandbox(t.Context(), "kept"))(t)
	inside := proctest.Value(sandbox.Client(t.Context()))(t)
	ended := proctest.Find(t, inside, process.ID(in.ended))
	proctest.WantExit(t, ended, 3)
	proctest.WantOutput(t, ended, process.Stdout, "was here\n")
	cat := proctest.Find(t, inside, process.ID(in.cat))
	proctest.Write(t, cat, "end\n")
	proctest.WantExit(t, cat, 5)
	proctest.WantOutput(t, cat, process.Stdout, "got before\ngot end\n")
	if res := proctest.Value(sandbox.Processes().Run(t.Context(), tend.Shell("cat /root/file; echo $$ > /tmp/x")))(t); res.Stdout != "kept\n" {
		t.Errorf("the files: %+v", res)
	}
	proctest.Must(t, sandbox.Destroy(t.Context()))
}

// A daemon is shut down and keeps what runs. The next one finds the sandbox with its
// process, what that has written, and the status of one that had ended.
func TestASandboxIsKeptForTheNextDaemon(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	in, ok := keepSandbox(t, c)
	if !ok {
		return
	}
	before := d.Roles()
	proctest.Must(t, c.Shutdown(t.Context(), true))
	launcher := before[testdaemon.Launcher]
	proctest.Eventually(t, "launcher and server have ended", func() bool {
		stat, ok := procfs.ReadStat(launcher)
		return (!ok || stat.Dead()) && d.Roles()[testdaemon.Server] == 0
	})
	d.KillLauncher() // it has ended; this collects it
	proctest.Must(t, d.ServeAgain())
	if after := d.Roles(); after[testdaemon.Keeper] != before[testdaemon.Keeper] {
		t.Errorf("the keeper was %d and is %d", before[testdaemon.Keeper], after[testdaemon.Keeper])
	}
	in.goesOn(t, d.Connect(t))
}

// The previous version's sandboxes run on over the upgrade of keeper and server.
func TestASandboxOutlivesAnUpgradeFromThePreviousVersion(t *testing.T) {
	t.Parallel()
	d := &daemon{testdaemon.Serve(t, testdaemon.Config{Command: []string{previous}})}
	c := d.Connect(t)
	in, ok := keepSandbox(t, c)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	proctest.Must(t, in.sandbox.Pause(ctx)) // sandboxes stand still over it, too
	for _, what := range []tend.Upgrade{{Keeper: true, Binary: bin}, {Server: true, Binary: bin}} {
		proctest.Must(t, d.Upgrade(ctx, what))
	}
	proctest.Must(t, in.sandbox.Resume(ctx))
	in.goesOn(t, c)
	// A server that is newer than its keeper gives IDs that this one takes.
	for _, keeper := range []struct {
		binary string
		id     int // length
	}{{bin, container.IDLen}, {previous, len("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")}} {
		proctest.Must(t, d.Upgrade(ctx, tend.Upgrade{Keeper: true, Binary: keeper.binary}))
		made := proctest.Value(c.CreateSandbox(ctx, tend.SandboxSpec{Isolation: tend.IsolationFull, Name: fmt.Sprint("of", keeper.id)}))(t) // no spare
		if id := proctest.Value(made.ID(ctx))(t); len(id) != keeper.id {
			t.Errorf("with the keeper of %s a sandbox has the ID %s", keeper.binary, id)
		}
		proctest.Must(t, made.Destroy(ctx))
	}
}
