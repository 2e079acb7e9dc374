//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// A directory that may have been killed, or have limits, is made again before its next
// process, with what a privileged descendant has made below it.
func TestAGroupOfAFormerKeeperIsMadeAnew(t *testing.T) {
	tree := Find(fmt.Sprintf("tend-test-%d", os.Getpid()))
	if tree.Root() == "" {
		t.Fatal(tree.Why())
	}
	defer tree.RemoveAll()
	open := func(slot uint32) (inode uint64) {
		t.Helper()
		fd := proctest.Value(tree.Open(slot))(t)
		defer unix.Close(fd)
		var st unix.Stat_t
		proctest.Must(t, unix.Fstat(fd, &st))
		return st.Ino
	}
	first := open(3)
	if open(3) != first {
		t.Error("a group was made anew that nobody killed")
	}
	proctest.Must(t, os.MkdirAll(filepath.Join(tree.dir(3), "below", "deeper"), 0o755))
	beyond := open(100)
	tree.Distrust(100)
	second := open(3)
	if second == first {
		t.Error("a group of a former keeper was used again")
	}
	if open(3) != second {
		t.Error("a group was made anew twice")
	}
	if open(100) != beyond {
		t.Error("a group was made anew that no former keeper used")
	}
}

// The parent of the groups is the machine's and may have any name, also one that looks like
// a nest's.
func TestWhatAFormerDaemonLeftIsEndedInAGroupOfAnyName(t *testing.T) {
	parent := filepath.Join(t.TempDir(), nestPrefix+"0c996ab")
	tree := &Tree{v1: []controller{{"pids", filepath.Join(parent, "tend-1")}}}
	put := func(dir string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sleep", "1000")
		proctest.Must(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		proctest.Must(t, os.MkdirAll(dir, 0o755))
		proctest.Must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Appendln(nil, cmd.Process.Pid), 0o644))
		return cmd
	}
	left := put(filepath.Join(parent, "tend-1."+owner{0, 1}.name()))
	inside := put(filepath.Join(parent, "tend-1", nestPrefix+"ox", owner{0, 2}.name()))
	tree.findOwn()
	if len(tree.owners()) != 2 {
		t.Fatalf("%d owners are found", len(tree.owners()))
	}
	tree.endOwn(t.Logf, nil)
	left.Process.Signal(unix.SIGTERM) // ends it otherwise
	if err := left.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("what was beside the tree: %v", err)
	}
	if err := inside.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("what was in a nest: %v", err)
	}
}

func TestTheFirstOfAContainerIsReadFromTheCgroupOfAProcess(t *testing.T) {
	for text, want := range map[string]bool{
		"0::/tend-12345678/b0c9/init\n":  true,
		"0::/x/tend-1/b0/init\n":         true,
		"0::/x/b0c9/init\n":              false,
		"0::/b0c9/init\n":                false,
		"0::/tend-12345678/b0c9/p1\n":    false,
		"0::/tend-12345678/other/init\n": false,
		"":                               false,
	} {
		if IsFirst(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}

func TestTheSlotIsReadFromTheCgroupOfAProcess(t *testing.T) {
	for text, want := range map[string]int{
		"0::/tend-12345678/p17\n":               17,
		"1:name=systemd:/p3\n0::/x/tend-1/p0\n": 0,
		"0::/tend-12345678/p17 (deleted)\n":     17,
		"0::/\n":                                -1,
		"0::/user.slice\n":                      -1,
		"0::/tend-1/probe\n":                    -1,
		"":                                      -1,
		"garbage":                               -1,
		"0::/tend-1/p99999999999999999999999\n": -1,
		"0::\n":                                 -1,
	} {
		if got := SlotOf(text); got != want {
			t.Errorf("%q: slot %d, want %d", text, got, want)
		}
	}
}
