//go:build linux

package client_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestAKeeperGoesOnInPlaceWithAThousandProcesses(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	ctx := t.Context()
	const n = 1000
	procs := make([]process.Process, n)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				p, err := m.Start(ctx, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe})
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				procs[i] = p
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for range 3 {
		proctest.Must(t, m.UpgradeKeeper(ctx, keeperBinary))
		t.Log(fact(t, m.Facts(), "keeper_upgrades"))
	}
	if got := fact(t, m.Facts(), "keeper_upgrades"); !strings.HasPrefix(got, "3 in place") {
		t.Errorf("the keeper says %q after 3 upgrades", got)
	}
	// Each still has its input, its output and its parent.
	for i, p := range procs {
		text := fmt.Sprintf("process %d\n", i)
		proctest.WriteLast(t, p, text)
		proctest.WantOutput(t, p, process.Stdout, text)
		proctest.WantExit(t, p, 0)
	}
}

func TestAKeeperThatCannotGoOnInPlaceStaysAsItWas(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	p := proctest.Start(t, m, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe})
	for _, path := range []string{filepath.Join(t.TempDir(), "missing"), "/dev/null", t.TempDir()} {
		if err := m.UpgradeKeeper(t.Context(), path); err == nil {
			t.Errorf("an upgrade to %s succeeded", path)
		}
	}
	proctest.WriteLast(t, p, "still here")
	proctest.WantOutput(t, p, process.Stdout, "still here")
}

func fact(t *testing.T, facts []string, name string) string {
	t.Helper()
	for _, f := range facts {
		if rest, ok := strings.CutPrefix(f, name+"="); ok {
			return rest
		}
	}
	t.Fatalf("no fact %s among %q", name, facts)
	return ""
}
