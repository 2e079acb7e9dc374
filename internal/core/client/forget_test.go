//go:build linux

package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// nameless has a process start one that nothing tells of.
func nameless(tree string) string {
	return "(echo 0 > " + tree + "/cgroup.procs; prlimit --pid $$ --rttime=unlimited; prlimit --pid $(sh -c 'echo $PPID') --rttime=unlimited; setsid SLEEP &)"
}

// unfinished is what is left of a process that cannot be removed.
func unfinished(t *testing.T, p process.Process) string {
	t.Helper()
	err := p.Remove(t.Context())
	e, ok := errors.AsType[*process.UnfinishedError](err)
	if !ok || !errors.Is(err, process.ErrRunning) {
		t.Fatalf("removed with %v; want what is left of it", err)
	}
	return e.Left
}

// One orphan that nothing tells of holds up the removal of no process.
func TestWhoMayBeAnybodysHoldsUpNoRemoval(t *testing.T) {
	proctest.Root(t) // nobody else may leave a cgroup
	tree := cgroup2(t)
	if tree == "" {
		t.Fatal("this test needs a cgroup v2 tree, and none is mounted")
	}
	stateDir := testkeeper.Start(t)
	m := testkeeper.Open(t, stateDir)
	before := proctest.Start(t, m, process.Spec{Argv: []string{"sleep", "1000"}}) // whose it could be, too
	p, pid := runaway(t, m, nameless(tree), "exit 3")
	proctest.WantExit(t, p, 3)
	if in := proctest.Info(t, p); in.TreeGone {
		t.Errorf("%+v; want that its tree may not be gone", in)
	}
	killKeeper(t, stateDir)
	if res, err := before.Kill(t.Context()); err != nil || res.Verified {
		t.Errorf("%+v, %v; want that somebody may be left", res, err)
	}
	w := proctest.Value(m.Watch(t.Context()))(t)
	defer w.Close()
	removed(t, p)
	killKeeper(t, stateDir) // it forgets nothing that was let go
	removed(t, before)
	for _, p := range []process.Process{p, before} {
		if _, err := m.Get(t.Context(), process.Selector{ID: p.ID()}); !errors.Is(err, process.ErrNotFound) {
			t.Errorf("%s is there: %v", p.ID(), err)
		}
	}
	for gone := 0; gone < 2; {
		ev, ok, err := w.Next()
		if proctest.Must(t, err); !ok {
			t.Fatal("nobody tells of the removals")
		}
		switch {
		case ev.Kind == process.EventTreeGone:
			t.Errorf("%s: it was said that nobody is left", ev.ID)
		case ev.Kind == process.EventRemoved:
			gone++
		}
	}
	if !alive(pid) {
		t.Error("what may be another's was killed")
	}
	for range 20 { // in the slots of those that were let go
		q := proctest.Start(t, m, process.Spec{Shell: "echo here; exit 4"})
		proctest.WantExit(t, q, 4)
		proctest.WantOutput(t, q, process.Stdout, "here\n")
		removed(t, q)
	}
}

// What is left of a process that cannot be removed is named.
func TestARemovalThatWaitsSaysForWhom(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	t.Run("a descendant", func(t *testing.T) {
		p := proctest.Start(t, m, process.Spec{Shell: "sleep 1000 >/dev/null 2>&1 & exit 2"})
		proctest.WantExit(t, p, 2)
		if left := unfinished(t, p); !strings.Contains(left, "(sleep) of its tree runs") {
			t.Errorf("left is %q", left)
		}
		forgotten(t, p)
	})
	t.Run("one that has its output and nothing tells of", func(t *testing.T) {
		proctest.Root(t)
		tree := cgroup2(t)
		up := filepath.Join(t.TempDir(), "up")
		script := strings.ReplaceAll(nameless(tree), "SLEEP", "sh -c 'echo $$ > "+up+".new; mv "+up+".new "+up+"; exec sleep 1000'")
		p := proctest.Start(t, m, process.Spec{Shell: script + "\nuntil [ -e " + up + " ]; do sleep 0.01; done; exit 2"})
		r := proctest.Value(p.Wait(t.Context(), process.Until{}))(t)
		if r.Exit == nil || r.Exit.Code != 2 {
			t.Fatalf("%+v", r.Exit)
		}
		pid := strings.TrimSpace(string(proctest.Value(os.ReadFile(up))(t)))
		if left := unfinished(t, p); !strings.Contains(left, "output open: stdout, stderr") || !strings.Contains(left, "pid "+pid+" (sleep)") {
			t.Errorf("left is %q", left)
		}
		if in := proctest.Info(t, p); in.Streams[0].EOF {
			t.Errorf("%+v; want that its output goes on", in)
		}
		unix.Kill(proctest.Value(strconv.Atoi(pid))(t), unix.SIGKILL)
		removed(t, p)
	})
	t.Run("the process itself", func(t *testing.T) {
		p := proctest.Start(t, m, process.Spec{Argv: []string{"sleep", "1000"}})
		if err := p.Remove(t.Context()); !errors.Is(err, process.ErrRunning) {
			t.Errorf("removed with %v", err)
		}
		forgotten(t, p)
	})
}
