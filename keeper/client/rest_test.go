//go:build linux

package client_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tend-run/tend/keeper"
	"github.com/tend-run/tend/process"
)

// A directory without a journal is what is left of a removal, and goes; one
// whose journal cannot be read may hold somebody's output, and stays.
func TestWhatIsLeftOfARemovalGoes(t *testing.T) {
	t.Parallel()
	stateDir := daemon(t)
	half, torn := process.NewID(), process.NewID()
	for id, file := range map[process.ID]string{half: "stdout", torn: "journal"} {
		dir := filepath.Join(stateDir, keeper.SpoolDir, string(id))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte("no record"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open(t, stateDir)
	exists := func(id process.ID) bool {
		_, err := os.Stat(filepath.Join(stateDir, keeper.SpoolDir, string(id)))
		return !errors.Is(err, fs.ErrNotExist)
	}
	for end := time.Now().Add(30 * time.Second); exists(half); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the rest of a removal is still there")
		}
	}
	if !exists(torn) {
		t.Error("a process whose journal cannot be read was removed")
	}
}
