//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/scene"
)

// A directory that may have been killed, or have limits, is made anew before its next
// process, with what a privileged descendant has made below it.
func TestAGroupOfAFormerKeeperIsMadeAnew(t *testing.T) {
	tree := Find(fmt.Sprintf("tend-test-%d", os.Getpid()))
	if tree.Root() == "" {
		t.Fatal(tree.Why())
	}
	defer tree.RemoveAll()
	open := func(slot uint32) (inode uint64) {
		t.Helper()
		fd := scene.Value(tree.Open(slot))(t)
		defer unix.Close(fd)
		var st unix.Stat_t
		scene.Must(t, unix.Fstat(fd, &st))
		return st.Ino
	}
	first := open(3)
	if open(3) != first {
		t.Error("a group was made anew that nobody killed")
	}
	scene.Must(t, os.MkdirAll(filepath.Join(tree.dir(3), "below", "deeper"), 0o755))
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
