//go:build linux

package client_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/internal/testkeeper"
	"github.com/tend-run/tend/keeper/client"
	"github.com/tend-run/tend/process"
)

// A writer ends its write of several parts at the successor of the server that took the
// first part. Others would wait for ten seconds for its rest.
func TestAWriteOfAFormerServerCanBeEnded(t *testing.T) {
	t.Parallel()
	stateDir := testkeeper.Start(t)
	before := scene.Value(client.Open(t.Context(), client.Config{StateDir: stateDir, Log: slog.New(slog.DiscardHandler)}))(t)
	p := scene.Start(t, before, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe})
	part := process.Input{Data: []byte("a"), Writer: "w", Offset: new(int64), More: true}
	scene.Value(p.Write(t.Context(), part))(t)
	scene.Must(t, before.Close())
	m := testkeeper.Open(t, stateDir)
	p = scene.Value(m.Get(t.Context(), process.Selector{ID: p.ID()}))(t)
	ended := scene.Value(p.Write(t.Context(), process.Input{Writer: "w", Offset: new(int64)}))(t)
	if ended.Written != 1 {
		t.Errorf("%d bytes were written by the writer that ends; want 1", ended.Written)
	}
	soon, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	if _, err := p.Write(soon, process.Input{Data: []byte("b")}); err != nil {
		t.Fatalf("another's write: %v", err)
	}
	scene.Value(p.Wait(t.Context(), process.Until{Match: "^ab$"}))(t) // cat holds no line back
}
