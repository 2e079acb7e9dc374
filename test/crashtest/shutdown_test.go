//go:build linux

package crashtest

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// The keeper is down when the daemon is told to end: it has just died, or it cannot start
// and the next try is seconds away; or no role finds another by the state directory. Its
// processes and sandboxes end all the same.
func TestAShutdownWithoutAKeeperLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, takeAway := range map[string]func(t *testing.T, d *testdaemon.Daemon){
		"it has just died": func(t *testing.T, d *testdaemon.Daemon) {
			proctest.Must(t, syscall.Kill(d.Roles()[testdaemon.Keeper], syscall.SIGKILL))
		},
		"it cannot start": cannotStart,
		"the state directory is removed": func(t *testing.T, d *testdaemon.Daemon) {
			removeState(t, d)
		},
		"the state directory is moved": func(t *testing.T, d *testdaemon.Daemon) {
			proctest.Must(t, os.Rename(d.StateDir(), d.StateDir()+"-moved"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := proctest.Value(testdaemon.Start(testdaemon.Config{Command: []string{bin}, Dir: t.TempDir()}))(t)
			c := proctest.Value(d.Dial(t.Context(), tend.Options{}))(t)
			defer c.Close()
			p := proctest.Value(c.Start(t.Context(), process.Spec{Argv: []string{"sleep", "100000"}}))(t)
			pids := []int{proctest.Info(t, p).PID}
			sandbox, err := c.CreateSandbox(t.Context(), tend.SandboxSpec{Isolation: tend.IsolationFull})
			switch {
			case err == nil:
				proctest.Value(sandbox.Processes().Spawn(t.Context(), tend.Shell("exec sleep 100000")))(t)
				pids = append(pids, firstOf(t, d)...)
			case !errors.Is(err, process.ErrUnsupported):
				t.Fatal(err)
			}
			takeAway(t, d)
			if strings.HasPrefix(name, "the state directory") {
				_, err := c.Start(t.Context(), process.Spec{Argv: []string{"true"}})
				if failed, ok := errors.AsType[*process.StartError](err); !ok || !strings.Contains(failed.Error(), "the state directory was removed or moved") {
					t.Errorf("a start in no directory: %v", err)
				}
			}
			if err := d.Stop(); err != nil {
				t.Error(err)
			}
			for _, pid := range pids {
				gone(t, pid) // what is killed takes a moment on a busy machine
			}
			if names, _ := os.ReadDir(filepath.Join(d.StateDir(), "cells")); len(names) > 0 {
				t.Errorf("files of boxes are left: %v", names)
			}
			if t.Failed() {
				t.Logf("log of the daemon:\n%s", d.Log())
			}
		})
	}
}

// removeState removes the state directory, in which the daemon may just make a file.
func removeState(t *testing.T, d *testdaemon.Daemon) {
	t.Helper()
	proctest.Eventually(t, "the state directory is removed", func() bool { return os.RemoveAll(d.StateDir()) == nil })
}

// A daemon that is to keep its processes for the next one loses its state directory. No
// other daemon could find them, so they end with it.
func TestADaemonThatKeepsProcessesEndsThemWithoutAStateDirectory(t *testing.T) {
	t.Parallel()
	d := proctest.Value(testdaemon.Start(testdaemon.Config{Command: []string{bin}, Dir: t.TempDir(), Flags: []string{"--keep"}}))(t)
	c := proctest.Value(d.Dial(t.Context(), tend.Options{}))(t)
	defer c.Close()
	p := proctest.Value(c.Start(t.Context(), process.Spec{Argv: []string{"sleep", "100000"}}))(t)
	pid := proctest.Info(t, p).PID
	removeState(t, d)
	if err := d.Stop(); err != nil {
		t.Errorf("%v; log of the daemon:\n%s", err, d.Log())
	}
	gone(t, pid)
}

// The anchor of such a daemon dies when it is told to end. The server ends all the same,
// and the processes stay.
func TestADaemonThatKeepsProcessesEndsItsServerBetweenTwoAnchors(t *testing.T) {
	t.Parallel()
	d := proctest.Value(testdaemon.Start(testdaemon.Config{Command: []string{bin}, Dir: t.TempDir(), Flags: []string{"--keep"}}))(t)
	c := proctest.Value(d.Dial(t.Context(), tend.Options{}))(t)
	defer c.Close()
	p := proctest.Value(c.Start(t.Context(), process.Spec{Argv: []string{"sleep", "100000"}}))(t)
	before := d.Roles()
	proctest.Must(t, syscall.Kill(before[testdaemon.Launcher], syscall.SIGSTOP))
	proctest.Must(t, syscall.Kill(before[testdaemon.Anchor], syscall.SIGKILL))
	proctest.Must(t, syscall.Kill(before[testdaemon.Launcher], syscall.SIGTERM))
	proctest.Must(t, syscall.Kill(before[testdaemon.Launcher], syscall.SIGCONT))
	gone(t, before[testdaemon.Launcher])
	gone(t, before[testdaemon.Server])
	if t.Failed() {
		t.Logf("log of the daemon:\n%s", d.Log())
	}
	d.KillLauncher()
	proctest.Must(t, d.ServeAgain())
	if in := proctest.Info(t, p); in.Exit != nil {
		t.Errorf("the process has ended: %+v", in.Exit)
	}
	proctest.Value(p.Kill(t.Context()))(t)
	proctest.Must(t, c.Shutdown(t.Context(), false))
	for _, pid := range d.Roles() {
		gone(t, pid)
	}
	d.KillLauncher()
}

// firstOf are the pids of the sandboxes' first processes, as the keeper's files have them.
func firstOf(t *testing.T, d *testdaemon.Daemon) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.StateDir(), "cells", "*"))
	proctest.Must(t, err)
	for _, f := range files {
		b := proctest.Value(os.ReadFile(f))(t)
		pids = append(pids, int(binary.LittleEndian.Uint32(b[16:])))
	}
	if len(pids) == 0 {
		t.Error("no box is there")
	}
	return pids
}

// cannotStart kills the keeper, and has the next ones fail until there is a long pause
// before another try.
func cannotStart(t *testing.T, d *testdaemon.Daemon) {
	t.Helper()
	spool := filepath.Join(d.StateDir(), "spool")
	anchor := d.Roles()[testdaemon.Anchor]
	proctest.Must(t, syscall.Kill(anchor, syscall.SIGSTOP))
	proctest.Must(t, syscall.Kill(d.Roles()[testdaemon.Keeper], syscall.SIGKILL))
	proctest.Must(t, os.Rename(spool, spool+".away"))
	proctest.Must(t, os.WriteFile(spool, nil, 0o600))
	proctest.Must(t, syscall.Kill(anchor, syscall.SIGCONT))
	proctest.Eventually(t, "the keeper is reported not to start", func() bool {
		_, err := os.Stat(filepath.Join(d.StateDir(), "run", "keeper.trouble"))
		return err == nil
	})
	proctest.Must(t, os.Remove(spool))
	proctest.Must(t, os.Rename(spool+".away", spool))
}
