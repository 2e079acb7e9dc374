//go:build !linux

package testkeeper

import (
	"testing"

	"github.com/tend-run/tend/process"
)

// New fails the test.
func New(t testing.TB) process.Manager {
	t.Helper()
	t.Fatal("the keeper works on Linux only")
	return nil
}
