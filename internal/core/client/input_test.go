//go:build linux

package client_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// A writer ends its write of several parts at the successor of the server that took the
// first part. Others would wait for ten seconds for its rest.
func TestAWriteOfAFormerServerCanBeEnded(t *testing.T) {
	t.Parallel()
	stateDir := testkeeper.Start(t)
	before := proctest.Value(client.Open(t.Context(), client.Config{StateDir: stateDir, Log: slog.New(slog.DiscardHandler)}))(t)
	p := proctest.Start(t, before, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe})
	part := process.Input{Data: []byte("a"), Writer: "w", Offset: new(int64), More: true}
	proctest.Value(p.Write(t.Context(), part))(t)
	proctest.Must(t, before.Close())
	m := testkeeper.Open(t, stateDir)
	p = proctest.Value(m.Get(t.Context(), process.Selector{ID: p.ID()}))(t)
	ended := proctest.Value(p.Write(t.Context(), process.Input{Writer: "w", Offset: new(int64)}))(t)
	if ended.Written != 1 {
		t.Errorf("%d bytes were written by the writer that ends; want 1", ended.Written)
	}
	soon, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	if _, err := p.Write(soon, process.Input{Data: []byte("b")}); err != nil {
		t.Fatalf("another's write: %v", err)
	}
	proctest.Value(p.Wait(t.Context(), process.Until{Match: "^ab$"}))(t) // cat holds no line back
}

// The connection of a part and that of the end of its write are two: the end may come first.
func TestAWriteThatIsEndedWhileItWaitsAcceptsNothingMore(t *testing.T) {
	t.Parallel()
	m := testkeeper.New(t)
	p := proctest.Start(t, m, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe})
	proctest.Must(t, p.Signal(t.Context(), int(unix.SIGSTOP), process.ScopeLeader))
	wrote := make(chan error, 1)
	go func() {
		_, err := p.Write(t.Context(), process.Input{Data: make([]byte, 4*process.MaxWhole), Writer: "w", Offset: new(int64), More: true})
		wrote <- err
	}()
	proctest.Eventually(t, "it waits for room", func() bool {
		return proctest.Value(p.Info(t.Context()))(t).Stdin.Accepted >= process.MaxWhole
	})
	proctest.Value(p.Write(t.Context(), process.Input{Writer: "w", Offset: new(int64)}))(t)
	// That its caller has given up comes later than that the process reads.
	proctest.Must(t, p.Signal(t.Context(), int(unix.SIGCONT), process.ScopeLeader))
	if err := <-wrote; !errors.Is(err, process.ErrWriterForgotten) {
		t.Errorf("its rest: %v", err)
	}
	taken := proctest.Value(p.Write(t.Context(), process.Input{Writer: "w", Offset: new(int64)}))(t).Written
	late := process.Input{Data: []byte("late"), Writer: "w", Offset: &taken, More: true}
	if _, err := p.Write(t.Context(), late); !errors.Is(err, process.ErrWriterForgotten) {
		t.Errorf("a part that comes after the end: %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	if _, err := p.Write(soon, process.Input{Data: []byte("b")}); err != nil {
		t.Fatalf("another's write: %v", err)
	}
}
