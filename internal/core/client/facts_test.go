//go:build linux

package client_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// A TTL that is over is over at the next access: nobody has to come by first.
func TestATTLIsOverAtTheNextAccess(t *testing.T) {
	client.SweepNever(t)
	m := testkeeper.Open(t, testkeeper.Start(t))
	// Whoever waits for its end may come when its time is over.
	p := proctest.Start(t, m, process.Spec{ID: "brief", Name: "web", Shell: "echo x", Retention: process.Retention{TTL: 300 * time.Millisecond}})
	for _, get := range []func() error{
		func() error { _, err := m.Get(t.Context(), process.Selector{ID: "brief"}); return err },
		func() error { _, err := m.Get(t.Context(), process.Selector{Name: "web"}); return err },
		func() error { _, err := p.Info(t.Context()); return err },
	} {
		proctest.Eventually(t, "its time is over", func() bool { return errors.Is(get(), process.ErrNotFound) })
	}
	proctest.Eventually(t, "its directory is removed", func() bool {
		list, err := m.List(t.Context(), process.Filter{})
		return err == nil && len(list) == 0
	})
}

// What one sandbox writes frees its own output, and not what others have finished before.
func TestASandboxFreesItsOwnOutput(t *testing.T) {
	dir := testkeeper.Start(t)
	m, end := nextServer(t, dir, client.Config{})
	in := func(sandbox, id string, n int) process.Process {
		p := proctest.Start(t, m, process.Spec{ID: process.ID(id), Shell: fmt.Sprintf("head -c %d /dev/zero", n), Labels: map[string]string{wire.LabelContainer: sandbox}})
		proctest.Wait(t, p, process.Until{EOF: true})
		return p
	}
	in("quiet", "old", 100_000)
	in("loud", "first", 2_000_000)
	in("loud", "second", 2_000_000)
	end()
	m, _ = nextServer(t, dir, client.Config{Budget: 1 << 20})
	base := func(id string) int64 { return proctest.Info(t, proctest.Find(t, m, process.ID(id))).Streams[0].Base }
	proctest.Eventually(t, "the loud one's output is freed", func() bool { return base("first") > 0 && base("second") > 0 })
	if b := base("old"); b != 0 {
		t.Errorf("%d bytes of another sandbox's output were freed", b)
	}
}

// When room is needed output goes, and what became of the process stays: for handles
// to it, for readers, for the next server, and for a start that is repeated.
func TestFactsStayWhenRoomIsNeeded(t *testing.T) {
	dir := testkeeper.Start(t)
	m, end := nextServer(t, dir, client.Config{})
	spec := process.Spec{ID: "told", Name: "web", Shell: "head -c 300000 /dev/zero; exit 7", Labels: map[string]string{"big": strings.Repeat("x", 100_000), "box": "b"}}
	p := proctest.Start(t, m, spec)
	proctest.Read(t, p, process.ReadOptions{MaxChunk: 1000})
	proctest.Wait(t, p, process.Until{EOF: true})
	pinned := proctest.Start(t, m, process.Spec{ID: "pinned", Shell: "echo kept", Retention: process.Retention{Pin: true}})
	proctest.Wait(t, pinned, process.Until{EOF: true})
	end()

	// Room for the facts alone.
	m, end = nextServer(t, dir, client.Config{Budget: 64 << 10})
	check := func(m process.Manager, when string) {
		t.Helper()
		p := proctest.Find(t, m, "told")
		proctest.Eventually(t, when+": the output is freed", func() bool {
			in, err := p.Info(t.Context())
			return err == nil && in.Streams[0].Base == 300000 && in.SpecCut
		})
		in, err := p.Info(t.Context())
		if err != nil || in.Exit == nil || in.Exit.Code != 7 || in.Spec.Name != "web" || in.Streams[0].End != 300000 || in.Spec.Labels["box"] != "b" || in.Damaged != "" {
			t.Errorf("%s: %+v, %v", when, in, err)
		}
		r := proctest.Read(t, p, process.ReadOptions{From: [4]int64{process.Stdout: 5}})
		var gap process.Gap
		exit := false
		for ev, err := range process.Follow(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			switch ev.Kind {
			case process.EventGap:
				gap = ev.Gap
			case process.EventOutput:
				t.Errorf("%s: output at %d", when, ev.Offset)
			case process.EventExited:
				exit = ev.Exit.Code == 7
			}
		}
		if gap != (process.Gap{Stream: process.Stdout, From: 5, To: 300000}) || !exit {
			t.Errorf("%s: the gap is %+v, the exit was told: %v", when, gap, exit)
		}
		if again, err := m.Start(t.Context(), spec); err != nil || again.ID() != "told" {
			t.Errorf("%s: the same start again: %v", when, err)
		}
		other := spec
		other.Labels = map[string]string{"box": "b"}
		if _, err := m.Start(t.Context(), other); !errors.Is(err, process.ErrExists) {
			t.Errorf("%s: another start: %v", when, err)
		}
		if in, err := proctest.Find(t, m, "pinned").Info(t.Context()); err != nil || in.Streams[0].Base != 0 {
			t.Errorf("%s: what is pinned: %+v, %v", when, in, err)
		}
	}
	check(m, "at once")
	end()
	killKeeper(t, dir)
	m, end = nextServer(t, dir, client.Config{})
	check(m, "after the death of both")
	end()
	if left, err := os.ReadDir(filepath.Join(dir, "spool", "told")); err != nil || len(left) != 1 {
		t.Errorf("there is left %v, %v", left, err)
	}

	// And those go when even they do not fit.
	m, _ = nextServer(t, dir, client.Config{Budget: 1})
	gone(t, m, "told")
}

// A server that dies while it frees leaves what the next one can go on with.
func TestAFreeingThatIsCutShortGoesOn(t *testing.T) {
	dir := testkeeper.Start(t)
	m, end := nextServer(t, dir, client.Config{})
	p := proctest.Start(t, m, process.Spec{ID: "half", Shell: "head -c 300000 /dev/zero; exit 7"})
	proctest.Wait(t, p, process.Until{EOF: true})
	keep := map[string][]byte{}
	proctest.Eventually(t, "the files are the server's", func() bool { return p.Trim(t.Context(), process.Stdout, 0) == nil })
	for _, name := range []string{"stdout", "index"} {
		b := proctest.Value(os.ReadFile(filepath.Join(dir, "spool", "half", name)))(t)
		keep[name] = b
	}
	end()
	m, end = nextServer(t, dir, client.Config{Budget: 64 << 10})
	proctest.Eventually(t, "it is freed", func() bool {
		in, err := proctest.Find(t, m, "half").Info(t.Context())
		return err == nil && in.Streams[0].Base == 300000
	})
	end() // waits for the sweep
	for name, b := range keep {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, "spool", "half", name), b, 0o600))
	}
	m, _ = nextServer(t, dir, client.Config{})
	in, err := proctest.Find(t, m, "half").Info(t.Context())
	if err != nil || in.Streams[0].Base != 300000 || in.Exit.Code != 7 {
		t.Errorf("%+v, %v", in, err)
	}
	proctest.Eventually(t, "what was left is removed", func() bool {
		left, err := os.ReadDir(filepath.Join(dir, "spool", "half"))
		return err == nil && len(left) == 1
	})
}

// What a damaged process takes of the disk is freed as that of others, and it
// stays known as damaged.
func TestTheOutputOfADamagedProcessIsFreed(t *testing.T) {
	dir := testkeeper.Start(t)
	of := filepath.Join(dir, "spool", "damaged")
	proctest.Must(t, os.MkdirAll(of, 0o700))
	for name, size := range map[string]int{"journal": 5, "stdout": 1 << 20} {
		proctest.Must(t, os.WriteFile(filepath.Join(of, name), make([]byte, size), 0o600))
	}
	m, _ := nextServer(t, dir, client.Config{Budget: 64 << 10})
	proctest.Eventually(t, "its output is freed", func() bool {
		_, err := os.Stat(filepath.Join(of, "stdout"))
		return errors.Is(err, os.ErrNotExist)
	})
	p := proctest.Find(t, m, "damaged")
	if in, err := p.Info(t.Context()); err != nil || in.Damaged == "" || in.Exit == nil || !in.Exit.Lost() {
		t.Errorf("%+v, %v", in, err)
	}
	if _, err := p.Read(t.Context(), process.ReadOptions{}); !errors.Is(err, process.ErrDamaged) {
		t.Errorf("it is read: %v", err)
	}
	if _, err := m.Start(t.Context(), process.Spec{ID: "damaged", Shell: "true"}); !errors.Is(err, process.ErrExists) {
		t.Errorf("its id is started: %v", err)
	}
	proctest.Remove(t, p)
	if _, err := m.Start(t.Context(), process.Spec{ID: "damaged", Shell: "true"}); err != nil {
		t.Errorf("its id, after the removal: %v", err)
	}
}
