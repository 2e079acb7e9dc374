package spool

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// Were the journal left, the next server would show the process with what it
// wrote missing, and no gap told.
func TestWhatARemovalThatWasCutShortLeavesIsNoProcess(t *testing.T) {
	for _, stops := range []string{IndexName, FileName(process.Stdout), FileName(process.Stderr)} {
		dir := t.TempDir()
		exit := AppendExited(AppendSpec(nil, time.Now(), &process.Spec{ID: "half", Shell: "true"}), time.Now(), &process.Exit{})
		for name, data := range map[string][]byte{JournalName: exit, IndexName: nil, FileName(process.Stdout): []byte("output")} {
			proctest.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
		real := remove
		remove = func(path string) error {
			if filepath.Base(path) == stops {
				return errors.New("stopped")
			}
			return real(path)
		}
		err := RemoveDir(dir)
		remove = real
		if err == nil {
			t.Fatalf("%s stopped nothing: the test proves nothing", stops)
		}
		if _, _, err := Finished(dir); !errors.Is(err, process.ErrNotFound) {
			t.Errorf("stopped at %s: %v; want %v", stops, err, process.ErrNotFound)
		}
	}
}

// Whatever lies in a directory, it can be removed.
func TestDirectoriesInPlaceOfFilesAreRemoved(t *testing.T) {
	for _, name := range fileNames {
		dir := filepath.Join(t.TempDir(), "p")
		proctest.Must(t, os.MkdirAll(filepath.Join(dir, name, "full"), 0o700))
		if err := RemoveDir(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the directory is still there: %v", name, err)
		}
	}
}
