//go:build linux

package client_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// A start with the id of a process that is just being removed returns that one,
// or another that runs: never an error, nor one whose files go.
func TestAnIDIsStartedAnewWhileItIsRemoved(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	spec := process.Spec{ID: "again", Shell: "echo said"}
	for range 200 {
		p := proctest.Start(t, m, spec)
		finished(t, p)
		var both sync.WaitGroup
		both.Go(func() {
			if err := p.Remove(t.Context()); err != nil {
				t.Errorf("remove: %v", err)
			}
		})
		both.Go(func() {
			q, err := m.Start(t.Context(), spec)
			if err != nil {
				t.Errorf("start: %v", err)
				return
			}
			if q == p {
				return // before the removal
			}
			finished(t, q)
			proctest.WantOutput(t, q, process.Stdout, "said\n")
		})
		both.Wait()
		if t.Failed() {
			return
		}
		q, err := m.Get(t.Context(), process.Selector{ID: "again"})
		if errors.Is(err, process.ErrNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		finished(t, q)
		proctest.Remove(t, q)
	}
}
