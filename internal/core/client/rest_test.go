//go:build linux

package client_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// The same of a process whose place on the board was not given back: its id can be
// used again.
func TestWhatIsLeftOfARemovalIsNotInTheWay(t *testing.T) {
	dir := testkeeper.Start(t)
	m, end := nextServer(t, dir, client.Config{})
	m.HoldSlots()
	spec := process.Spec{ID: "half", Shell: "echo said"}
	p := proctest.Start(t, m, spec)
	finished(t, p)
	end()
	proctest.Must(t, os.Remove(filepath.Join(dir, rundir.SpoolDir, "half", spool.JournalName)))

	m, _ = nextServer(t, dir, client.Config{})
	p = proctest.Start(t, m, spec)
	proctest.WantOutput(t, p, process.Stdout, "said\n")
}

// A directory without a journal is what is left of a removal, and goes; one
// whose journal cannot be read may hold somebody's output, and stays.
func TestWhatIsLeftOfARemovalGoes(t *testing.T) {
	t.Parallel()
	stateDir := testkeeper.Start(t)
	half, torn := process.NewID(), process.NewID()
	for id, file := range map[process.ID]string{half: "stdout", torn: "journal"} {
		dir := filepath.Join(stateDir, rundir.SpoolDir, string(id))
		proctest.Must(t, os.MkdirAll(dir, 0o700))
		proctest.Must(t, os.WriteFile(filepath.Join(dir, file), []byte("no record"), 0o600))
	}
	testkeeper.Open(t, stateDir)
	exists := func(id process.ID) bool {
		_, err := os.Stat(filepath.Join(stateDir, rundir.SpoolDir, string(id)))
		return !errors.Is(err, fs.ErrNotExist)
	}
	proctest.Eventually(t, "the rest of a removal is gone", func() bool { return !exists(half) })
	if !exists(torn) {
		t.Error("a process whose journal cannot be read was removed")
	}
}
