//go:build linux

package testdaemon

import (
	"context"
	"os"
	"time"

	"github.com/tend-run/tend"
)

// TB is what the functions for tests need of a *testing.T. The product has this
// package in it, and not package testing.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Error(args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Serve starts a daemon for one test, which fails if the daemon does not end
// well. Without a Dir it gets one, below a short path and removed at the end.
func Serve(t TB, cfg Config) *Daemon {
	t.Helper()
	if cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "tend-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		cfg.Dir = dir
	}
	d, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", d.Log())
		}
	})
	return d
}

// Connect dials for one test.
func (d *Daemon) Connect(t TB) *tend.Client {
	t.Helper()
	c, err := d.Dial(t.Context(), tend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Eventually waits for what must happen, however loaded the machine is.
func Eventually(t TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
