//go:build linux

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// Between any two steps of the making and of the end of a sandbox the server dies, or the
// keeper while the server stands there, or both. The sandbox is whole then, or nothing is
// left of it. A step that no server comes to is a failure.
func TestASandboxIsWholeOrGoneAtEachStep(t *testing.T) {
	t.Parallel()
	eachStep(t, false)
}

// The same while a sandbox is kept ready for the next creation: then that one is made while
// the server comes to a step, or taken. Beside the sandboxes nothing is left but a spare.
func TestASpareIsWholeOrGoneAtEachStep(t *testing.T) {
	t.Parallel()
	eachStep(t, true)
}

func eachStep(t *testing.T, spare bool) {
	var flags []string
	if !spare {
		flags = []string{"--no-spare-sandbox", "--sandbox-disk", "16MiB"}
	}
	dir := t.TempDir()
	proctest.Must(t, os.MkdirAll(testdaemon.StateDir(dir), 0o700))
	table := proctest.Value(failpoint.Create(testdaemon.StateDir(dir)))(t)
	t.Cleanup(func() { table.Close() })
	w := &steps{daemon: &daemon{testdaemon.Serve(t, testdaemon.Config{Command: []string{pointed}, Dir: dir, Flags: flags})}, table: table, spare: spare}
	w.c = w.Connect(t)
	spec := tend.SandboxSpec{Isolation: tend.IsolationFull}
	if _, err := w.c.CreateSandbox(t.Context(), spec); errors.Is(err, process.ErrUnsupported) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	w.clear(t)
	for p := failpoint.SandboxFolders; p <= failpoint.SandboxDiscarded; p++ {
		for _, victims := range [][]string{{testdaemon.Server}, {testdaemon.Keeper}, {testdaemon.Keeper, testdaemon.Server}} {
			t.Run(fmt.Sprintf("%s, %s dies", p, strings.Join(victims, " and ")), func(t *testing.T) {
				var err error
				if p < failpoint.SandboxDestroying {
					err = w.strike(t, p, victims, func(ctx context.Context) error {
						_, err := w.c.CreateSandbox(ctx, spec)
						return err
					})
					all := w.whole(t)
					if err == nil && len(all) != 1 {
						t.Errorf("it was made, and %d are there", len(all))
					}
				} else {
					sandbox := proctest.Value(w.c.CreateSandbox(t.Context(), spec))(t)
					proctest.Value(sandbox.Processes().Spawn(t.Context(), tend.Shell("sleep 1000")))(t)
					err = w.strike(t, p, victims, sandbox.Destroy)
				}
				if err != nil && !(slices.Contains(victims, testdaemon.Server) && errors.Is(err, process.ErrUnavailable)) {
					t.Error(err)
				}
				if p >= failpoint.SandboxDestroying {
					proctest.Eventually(t, "it is gone", func() bool {
						all, err := w.c.Sandboxes(t.Context(), tend.SandboxFilter{})
						return err == nil && len(all) == 0
					})
				}
				w.clear(t)
			})
		}
	}
	w.clear(t)
}

type steps struct {
	*daemon
	c     *tend.Client
	table *failpoint.Table
	spare bool // one may be there
}

// strike kills roles while the server stands at a point on its way through do.
func (w *steps) strike(t *testing.T, p failpoint.Point, victims []string, do func(context.Context) error) error {
	t.Helper()
	before, _ := w.table.Struck(p)
	w.table.Arm(p, 1, true)
	done := make(chan error, 1)
	go func() { done <- do(t.Context()) }()
	proctest.Eventually(t, "the server stands at "+p.String(), func() bool {
		n, _ := w.table.Struck(p)
		return n > before
	})
	for _, v := range victims {
		if pid := w.Roles()[v]; pid > 0 {
			proctest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
		} else {
			t.Errorf("there is no %s", v)
		}
	}
	w.table.Disarm(p)
	proctest.Eventually(t, "the server goes on or is gone", func() bool {
		_, pid := w.table.Struck(p)
		return pid == 0 || syscall.Kill(pid, syscall.SIGCONT) != nil
	})
	return <-done
}

// whole returns the sandboxes that there are, each of which must work.
func (w *steps) whole(t *testing.T) []tend.SandboxInfo {
	t.Helper()
	var all []tend.SandboxInfo
	proctest.Eventually(t, "the server answers", func() (ok bool) {
		var err error
		all, err = w.c.Sandboxes(t.Context(), tend.SandboxFilter{})
		return err == nil
	})
	for _, in := range all {
		sandbox := proctest.Value(w.c.Sandbox(t.Context(), in.ID))(t)
		if res, err := sandbox.Processes().Run(t.Context(), tend.Shell("echo in")); err != nil || res.Stdout != "in\n" {
			t.Errorf("sandbox %s, %v: %+v, %v", in.ID, in.State, res, err)
		}
	}
	return all
}

// clear destroys all sandboxes, and checks that nothing of any is left: no folder, no sandbox,
// no process. Of a spare there is a folder without a record, and a sandbox.
func (w *steps) clear(t *testing.T) {
	t.Helper()
	for _, in := range w.whole(t) {
		sandbox := proctest.Value(w.c.Sandbox(t.Context(), in.ID))(t)
		proctest.Must(t, sandbox.Destroy(t.Context()))
	}
	state := w.StateDir()
	var left []string
	proctest.Eventually(t, "nothing is left of sandboxes", func() bool {
		left = nil
		spares := map[string]bool{}
		for _, dir := range []string{"sandboxes", "cells", "sandboxes/.trash"} {
			names, _ := os.ReadDir(filepath.Join(state, dir))
			for _, n := range names {
				if w.spare && dir != "sandboxes/.trash" && w.isSpare(n.Name()) {
					spares[n.Name()] = true
				} else if dir != "sandboxes" || driver.LikeID(n.Name()) {
					left = append(left, dir+"/"+n.Name())
				}
			}
		}
		loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		for _, path := range loops {
			if of, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(of), state+"/") {
				left = append(left, strings.TrimSpace(string(of)))
			}
		}
		all, err := w.c.List(t.Context(), process.Filter{Live: true})
		return len(left) == 0 && len(spares) <= 1 && err == nil && len(all) == 0
	})
	if t.Failed() {
		t.Logf("left: %v", left)
	}
}

// isSpare reports whether a name is that of a folder without a record, and of a sandbox.
func (w *steps) isSpare(name string) bool {
	_, err := os.Stat(filepath.Join(w.StateDir(), "sandboxes", name, "box.json"))
	_, folder := os.Stat(filepath.Join(w.StateDir(), "sandboxes", name, "up"))
	_, sandbox := os.Stat(filepath.Join(w.StateDir(), "cells", name))
	return driver.LikeID(name) && errors.Is(err, os.ErrNotExist) && folder == nil && sandbox == nil
}
