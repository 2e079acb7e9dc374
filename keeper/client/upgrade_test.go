//go:build linux

package client_test

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/process"
)

func TestAKeeperGoesOnInPlaceWithAThousandProcesses(t *testing.T) {
	m := open(t, daemon(t))
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
		if err := m.UpgradeKeeper(ctx, keeperBinary); err != nil {
			t.Fatal(err)
		}
		t.Log(fact(t, m.Facts(), "keeper_upgrades"))
	}
	if got := fact(t, m.Facts(), "keeper_upgrades"); !strings.HasPrefix(got, "3 in place") {
		t.Errorf("the keeper says %q after 3 upgrades", got)
	}
	// Each still has its input, its output and its parent.
	for i, p := range procs {
		wg.Go(func() {
			text := fmt.Sprintf("process %d\n", i)
			if _, err := p.Write(ctx, process.Input{Data: []byte(text), EOF: true}); err != nil {
				t.Errorf("%d: write: %v", i, err)
				return
			}
			if got, err := readAll(t, p); err != nil || got != text {
				t.Errorf("%d: read %q, %v; want %q", i, got, err, text)
			}
			r, err := p.Wait(ctx, process.Until{EOF: true})
			if err != nil || r.Exit == nil || r.Exit.Code != 0 || r.Exit.Cause != process.CauseExited {
				t.Errorf("%d: ended with %+v, %v", i, r.Exit, err)
			}
		})
	}
	wg.Wait()
}

func TestAKeeperThatCannotGoOnInPlaceStaysAsItWas(t *testing.T) {
	m := open(t, daemon(t))
	p, err := m.Start(t.Context(), process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "missing"), "/dev/null", t.TempDir()} {
		if err := m.UpgradeKeeper(t.Context(), path); err == nil {
			t.Errorf("an upgrade to %s succeeded", path)
		}
	}
	if _, err := p.Write(t.Context(), process.Input{Data: []byte("still here"), EOF: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, p); err != nil || got != "still here" {
		t.Errorf("read %q, %v", got, err)
	}
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

// readAll reads stdout to its end.
func readAll(t *testing.T, p process.Process) (string, error) {
	r, err := p.Read(t.Context(), process.ReadOptions{Streams: []process.Stream{process.Stdout}, Drain: -1})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for ev, err := range process.Follow(t.Context(), r) {
		if err != nil && err != io.EOF {
			return b.String(), err
		}
		b.Write(ev.Data)
	}
	return b.String(), nil
}
