//go:build linux

package spare

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

func TestASpareDirectoryGetsItsNameOnlyWhenItIsSettled(t *testing.T) {
	root := t.TempDir()
	p := New(root, 64*4)
	if !p.batch(0) || len(p.ready) != 4 {
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
