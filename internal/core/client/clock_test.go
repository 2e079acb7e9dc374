//go:build linux

package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// finishedAt writes the files of a process that finished just now, in a boot of
// the machine, when the clock on the wall showed a time.
func finishedAt(t *testing.T, dir string, id process.ID, boot string, wall time.Time) {
	t.Helper()
	path := filepath.Join(dir, "spool", string(id))
	proctest.Must(t, os.MkdirAll(path, 0o700))
	b := spool.AppendSpec(nil, wall, &process.Spec{ID: id, Argv: []string{"true"}})
	b = spool.AppendStarted(b, wall, spool.Started{PID: 1, BootID: boot})
	b = spool.AppendExited(b, wall, &process.Exit{Time: wall})
	proctest.Must(t, os.WriteFile(filepath.Join(path, spool.JournalName), b, 0o600))
}

// Who sets the clock makes no finished process older or younger, as far as
// anybody can know.
func TestTheTimeThatFinishedProcessesAreKeptIsNoClockThatIsSet(t *testing.T) {
	dir := testkeeper.Start(t)
	b := proctest.Value(os.ReadFile("/proc/sys/kernel/random/boot_id"))(t)
	boot := strings.TrimSpace(string(b))
	long := time.Now().AddDate(-40, 0, 0)
	finishedAt(t, dir, "before-the-clock-was-set", boot, long) // in the order of their start, which is that of their removal
	finishedAt(t, dir, "in-another-life", "another boot", long.Add(time.Second))
	finishedAt(t, dir, "in-the-future", "another boot", time.Now().AddDate(40, 0, 0))

	m, end := nextServer(t, dir, client.Config{})
	is := func(id process.ID) bool {
		_, err := m.Get(t.Context(), process.Selector{ID: id})
		if err != nil && !errors.Is(err, process.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	proctest.Eventually(t, "the old one is removed", func() bool { return !is("in-another-life") })
	if !is("before-the-clock-was-set") {
		t.Error("a process was removed that finished a moment ago: the clock was set forwards since")
	}
	if !is("in-the-future") {
		t.Error("a process was removed that finished, for all that is known, a moment ago")
	}
	end()

	m, _ = nextServer(t, dir, client.Config{TTL: time.Nanosecond})
	proctest.Eventually(t, "the one from before the clock was set is removed in its time", func() bool { return !is("before-the-clock-was-set") })
	proctest.Eventually(t, "the one from the future is removed in its time", func() bool { return !is("in-the-future") })
}
