//go:build linux

package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// forgotten ends a process for certain and has it forgotten.
func forgotten(t *testing.T, p process.Process) {
	t.Helper()
	if res, err := p.Kill(t.Context()); err != nil || !res.Verified {
		t.Errorf("killed with %+v, %v; want that nobody may be left", res, err)
	}
	removed(t, p)
}

func removed(t *testing.T, p process.Process) {
	t.Helper()
	proctest.Eventually(t, string(p.ID())+" is removed", func() bool {
		err := p.Remove(t.Context())
		if err != nil && !errors.Is(err, process.ErrRunning) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// The keeper dies after it made a child that is to hold a namespace for it, and before
// that child can ask to end with the keeper.
func TestWhoHelpsAKeeperThatDiesHoldsUpNoRemoval(t *testing.T) {
	proctest.Root(t)
	stateDir, l := watched(t, unix.SYS_SETNS)
	armed, struck := killAt(l, child)
	m := testkeeper.Open(t, stateDir)
	p := proctest.Start(t, m, process.Spec{Argv: []string{"sleep", "1000"}}) // whose descendant the helper could be
	armed <- pids(t, stateDir).Keeper
	can, err := m.Containers().Can(t.Context())
	if err != nil || can.Mode == 0 {
		t.Fatalf("%+v, %v", can, err)
	}
	<-struck
	forgotten(t, p)
	// Who came to its program only after that is ended at the next exit.
	proctest.WantExit(t, proctest.Start(t, m, process.Spec{Argv: []string{"true"}}), 0)
	proctest.Eventually(t, "nobody is left who was to help", func() bool { return len(helpers(t, stateDir)) == 0 })
}

// A keeper of before left a helper, which has no mark.
func TestAHelperWithoutAMarkIsEnded(t *testing.T) {
	proctest.Root(t)
	tree := cgroup2(t)
	if tree == "" {
		t.Fatal("this test needs a cgroup v2 tree, and none is mounted")
	}
	m, stateDir := containerManager(t)
	s := newContainerDirs(t).spec(t)
	info := makeContainer(t, m.Containers(), s)
	program := filepath.Join(t.TempDir(), "first")
	proctest.Must(t, os.WriteFile(program, proctest.Value(os.ReadFile(procfs.Path(info.PID, "exe")))(t), 0o755))
	killKeeper(t, stateDir)
	p, pid := runawayAs(t, m, nameless(tree), "sleep 1000", program+" -")
	proctest.Eventually(t, "it has become the program", func() bool { exe, _ := os.Readlink(procfs.Path(pid, "exe")); return exe == program })
	forgotten(t, p)
	proctest.Eventually(t, "the helper is ended", func() bool { return !alive(pid) })
	if !livesOn(info.PID) {
		t.Error("pid 1 of a container was ended, too")
	}
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
}
