//go:build !linux

package fakeproc

import (
	"testing"

	"github.com/tend-run/tend/process"
)

// New ends the test: the fake needs pidfds and /proc.
func New(t testing.TB) process.Manager {
	t.Helper()
	t.Fatal("fakeproc works on Linux only")
	return nil
}
