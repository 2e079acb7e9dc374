//go:build linux

package dirpool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

func TestASpareDirectoryGetsItsNameOnlyWhenItIsSettled(t *testing.T) {
	root := t.TempDir()
	p := New(root, 64*4)
	if !p.batch() || len(p.ready) != 4 {
		t.Fatalf("%d directories are ready; want 4", len(p.ready))
	}
	dir, journal, err := p.Take("a")
	if err != nil || journal < 0 {
		t.Fatalf("journal %d, %v", journal, err)
	}
	defer unix.Close(journal)
	if dirs := Dirs(root); len(dirs) != 4 { // it is still one of them
		t.Errorf("spare directories: %q", dirs)
	}
	final, err := p.Settle(dir, "a")
	if err != nil || final != filepath.Join(root, "a") {
		t.Fatalf("%s, %v", final, err)
	}
	if _, _, err := p.Take("a"); !errors.Is(err, process.ErrExists) {
		t.Errorf("an id that is taken: %v", err)
	}
	p.RemoveAll()
	if entries, _ := os.ReadDir(root); len(entries) != 1 || entries[0].Name() != "a" {
		t.Errorf("left: %v", entries)
	}
}

// However starts come, and though some are slow: one at a time, so that batches are made
// while directories of the former one are still to be taken.
func TestBatchesThatWereUsedLeaveNoDirectory(t *testing.T) {
	root := t.TempDir()
	p := New(root, 64*4)
	const slow = 3 // starts are under way at a time
	var under []func()
	for n := range 200 {
		p.fill()
		id := process.ID(fmt.Sprint(n))
		dir, journal, err := p.Take(id)
		if err != nil || journal < 0 {
			t.Fatalf("journal %d, %v", journal, err)
		}
		under = append(under, func() {
			unix.Close(journal)
			if _, err := p.Settle(dir, id); err != nil {
				t.Error(err)
			}
		})
		if len(under) > slow {
			under[0]()
			under = under[1:]
		}
	}
	for _, end := range under {
		end()
	}
	p.batch()
	parents, err := filepath.Glob(filepath.Join(root, prefix+"*"))
	if err != nil || len(parents) > 3 { // two full ones at most, and what is left of one
		t.Errorf("%d directories of batches are left, %v: %q", len(parents), err, parents)
	}
}

func TestAStartWithoutSpareDirectoriesMakesItsOwn(t *testing.T) {
	root := t.TempDir()
	p := New(root, 0)
	dir, journal, err := p.Take("a")
	if err != nil || dir != filepath.Join(root, "a") || journal != -1 {
		t.Fatalf("%s, journal %d, %v", dir, journal, err)
	}
	if final, err := p.Settle(dir, "a"); err != nil || final != dir {
		t.Errorf("%s, %v", final, err)
	}
}
