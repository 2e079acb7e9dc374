//go:build linux

package client_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// Whoever continues with a running process does not wait for finished ones to be
// read, of which there may be thousands; who asks for one of those does.
func TestARunningProcessIsServedWhileFinishedOnesAreRead(t *testing.T) {
	dir := testkeeper.Start(t)
	m, end := nextServer(t, dir, client.Config{})
	running := proctest.Start(t, m, process.Spec{ID: "running", Argv: []string{"cat"}, Stdin: process.StdinPipe})
	in := proctest.Info(t, running)
	end()
	at := time.Now()
	b := spool.AppendSpec(nil, at, &process.Spec{ID: "finished", Argv: []string{"true"}})
	b = spool.AppendExited(spool.AppendStarted(b, at, spool.Started{PID: 1}), at, &process.Exit{Cause: process.CauseExited, Time: at})
	journal := filepath.Join(dir, "spool", "finished", "journal")
	proctest.Must(t, errors.Join(os.Mkdir(filepath.Dir(journal), 0o700), os.WriteFile(journal, b, 0o600)))

	release := client.HoldScan(t)
	m, _ = nextServer(t, dir, client.Config{})
	for _, sel := range []process.Selector{{ID: "running"}, {PID: in.PID}} {
		if p, err := m.Get(t.Context(), sel); err != nil || p.ID() != "running" {
			t.Errorf("%+v: %v, %v", sel, p, err)
		}
	}
	finished(t, proctest.Start(t, m, process.Spec{ID: "new", Argv: []string{"true"}}))
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Get(impatient, process.Selector{ID: "finished"}); !errors.Is(err, context.Canceled) {
		t.Errorf("the finished one, while it is read: %v", err)
	}
	if _, err := m.List(impatient, process.Filter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("all, while they are read: %v", err)
	}
	if _, err := m.Start(impatient, process.Spec{ID: "finished", Argv: []string{"false"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("another with the same id: %v", err)
	}
	release()
	if list, err := m.List(t.Context(), process.Filter{}); err != nil || len(list) != 3 {
		t.Errorf("%v, %v; want three", list, err)
	}
	if _, err := m.Start(t.Context(), process.Spec{ID: "finished", Argv: []string{"false"}}); !errors.Is(err, process.ErrExists) {
		t.Errorf("another with the same id, later: %v", err)
	}
}
