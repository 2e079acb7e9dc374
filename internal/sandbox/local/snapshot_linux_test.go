package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/support/proctest"
)

// put writes a file as a program of the sandbox would.
func put(t *testing.T, s *sandbox, name, text string) {
	t.Helper()
	proctest.Must(t, os.WriteFile(filepath.Join(s.dir(), upName, name), []byte(text), 0o644))
}

// sees returns a file as the container of a sandbox is stacked: "" if there is none.
func sees(t *testing.T, e *paperEngine, s *sandbox, name string) string {
	t.Helper()
	e.mu.Lock()
	spec, there := e.specs[container.ID(s.id)]
	e.mu.Unlock()
	if !there {
		t.Fatalf("%s has no container", s.id)
	}
	for _, dir := range append([]string{filepath.Join(spec.Dir, upName)}, spec.Layers...) {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return string(text)
		}
	}
	return ""
}

func snap(t *testing.T, d *Driver, s *sandbox, name string) driver.Snapshot {
	t.Helper()
	n, err := d.Snapshot(t.Context(), s.id, driver.SnapshotSpec{Name: name})
	proctest.Must(t, err)
	return n
}

func TestASnapshotHasTheFilesOfItsMoment(t *testing.T) {
	proctest.Root(t)
	cfg, e := onPaper(t)
	d := openOn(t, cfg)
	s, _ := create(t, d, driver.Spec{Name: "first", Run: driver.RunConfig{Env: map[string]string{"A": "1"}, Dir: "/srv"}})
	for _, state := range []string{"running", "paused", "stopped"} {
		put(t, s, "f", state)
		switch state {
		case "paused":
			proctest.Must(t, d.Pause(t.Context(), s.id, driver.PauseSpec{Memory: true}))
		case "stopped":
			proctest.Must(t, s.Stop(t.Context()))
		}
		n := snap(t, d, s, state)
		if in, err := e.of(container.ID(s.id), func(*container.Info) {}); err == nil && in.Frozen != (state == "paused") {
			t.Errorf("%s: frozen is %v afterwards", state, in.Frozen)
		}
		if state != "running" {
			proctest.Must(t, s.Start(t.Context()))
		}
		if got := sees(t, e, s, "f"); got != state {
			t.Errorf("%s: the sandbox sees %q", state, got)
		}
		put(t, s, "f", "later")
		copied, in := create(t, d, driver.Spec{Snapshot: n.Name})
		if got := sees(t, e, copied, "f"); got != state {
			t.Errorf("%s: the copy sees %q", state, got)
		}
		if in.Snapshot != string(n.ID) || in.Run.Env["A"] != "1" || in.Run.Dir != "/srv" {
			t.Errorf("%s: %+v", state, in)
		}
		put(t, copied, "f", "the copy's")
		if got := sees(t, e, s, "f"); got != "later" {
			t.Errorf("%s: the sandbox sees %q", state, got)
		}
	}
	all, err := d.Snapshots(t.Context())
	if err != nil || len(all) != 3 || all[0].Name != "running" || all[0].Sandbox != s.id {
		t.Errorf("%+v, %v", all, err)
	}
	for name, err := range map[string]error{
		"taken":   justErr(d.Snapshot(t.Context(), s.id, driver.SnapshotSpec{Name: "paused"})),
		"hostile": justErr(d.Snapshot(t.Context(), s.id, driver.SnapshotSpec{Name: "../x"})),
		"missing": justErr(d.Create(t.Context(), driver.Spec{Snapshot: "nothing"})),
		"of none": justErr(d.Snapshot(t.Context(), driver.NewID(), driver.SnapshotSpec{})),
	} {
		_, invalid := errors.AsType[*driver.InvalidError](err)
		if name == "taken" && !errors.Is(err, driver.ErrExists) || name == "hostile" && !invalid || (name == "missing" || name == "of none") && !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// looking is a context that calls look each time it is asked whether it has ended.
type looking struct {
	context.Context
	look func()
}

func (l looking) Err() error {
	l.look()
	return l.Context.Err()
}

func TestASandboxTellsHowFarItsFilesAreCopied(t *testing.T) {
	proctest.Root(t)
	cfg, _ := onPaper(t)
	d := openOn(t, cfg)
	s, _ := create(t, d, driver.Spec{Name: "first"})
	copied := func() int64 { return proctest.Value(s.Info(t.Context()))(t).Copied }
	for _, paused := range []bool{true, false} {
		for _, name := range []string{"a", "b"} {
			put(t, s, name, strings.Repeat("x", 1<<20))
		}
		proctest.Must(t, d.Pause(t.Context(), s.id, driver.PauseSpec{Memory: paused}))
		most := int64(0)
		_, err := d.Snapshot(looking{t.Context(), func() { most = max(most, copied()) }}, s.id, driver.SnapshotSpec{})
		proctest.Must(t, err)
		if paused != (most == 1<<20) || copied() != 0 { // one of them, before the other
			t.Errorf("with processes: %v; %d bytes are said to be copied, and %d afterwards", paused, most, copied())
		}
		proctest.Must(t, d.Resume(t.Context(), s.id))
	}
}

func justErr[T any](_ T, err error) error { return err }

func TestFilesGoWithTheLastThatNeedsThem(t *testing.T) {
	proctest.Root(t)
	cfg, e := onPaper(t)
	d := openOn(t, cfg)
	s, _ := create(t, d, driver.Spec{Name: "first"})
	put(t, s, "f", "one")
	proctest.Must(t, s.Stop(t.Context()))
	snap(t, d, s, "n")
	proctest.Must(t, s.Start(t.Context()))
	forks, err := d.Fork(t.Context(), s.id, driver.ForkSpec{Count: 2})
	proctest.Must(t, err)
	put(t, s, "f", "two")
	layers := func() int {
		t.Helper()
		proctest.Must(t, d.layers.Sweep(t.Context(), 0))
		names, err := os.ReadDir(filepath.Join(cfg.Dir, layersName))
		proctest.Must(t, err)
		return len(names) - 2
	}
	if n := layers(); n != 1 {
		t.Errorf("%d layers", n)
	}
	proctest.Must(t, d.DeleteSnapshot(t.Context(), "n"))
	proctest.Must(t, s.Destroy(t.Context()))
	d = openOn(t, cfg) // whoever holds says so again
	if n := layers(); n != 1 {
		t.Errorf("%d layers", n)
	}
	for i, f := range forks {
		proctest.Must(t, f.Err)
		b, err := d.Get(t.Context(), string(f.Sandbox.(*sandbox).id))
		proctest.Must(t, err)
		if got := sees(t, e, b.(*sandbox), "f"); got != "one" {
			t.Errorf("fork %d sees %q", i, got)
		}
		proctest.Must(t, b.Destroy(t.Context()))
	}
	if n := layers(); n != 0 {
		t.Errorf("%d layers are left", n)
	}
	if err := d.DeleteSnapshot(t.Context(), "n"); !errors.Is(err, driver.ErrNotFound) {
		t.Error(err)
	}
	for _, count := range []int{-1, driver.MaxForks + 1} {
		if _, err := d.Fork(t.Context(), s.id, driver.ForkSpec{Count: count}); err == nil {
			t.Errorf("%d forks", count)
		}
	}
}

func TestASealThatWasCutShortIsFinished(t *testing.T) {
	proctest.Root(t)
	cfg, e := onPaper(t)
	d := openOn(t, cfg)
	s, _ := create(t, d, driver.Spec{Name: "cut"})
	for _, text := range []string{"one", "two"} {
		put(t, s, text, text)
		proctest.Must(t, s.Stop(t.Context()))
		// The daemon ends before the record says it.
		_, err := d.layers.Seal(filepath.Join(s.dir(), upName), layer.Meta{Parent: s.rec.Layer, By: s.holder()})
		proctest.Must(t, err)
		d = openOn(t, cfg)
		proctest.Must(t, d.layers.Sweep(t.Context(), 0))
		again, err := d.Get(t.Context(), "cut")
		proctest.Must(t, err)
		s = again.(*sandbox)
		proctest.Must(t, s.Start(t.Context()))
		if got := sees(t, e, s, "one") + sees(t, e, s, text); got != "one"+text {
			t.Errorf("it sees %q", got)
		}
	}
	// A directory that is lost otherwise is a new one.
	proctest.Must(t, errors.Join(s.Stop(t.Context()), os.RemoveAll(filepath.Join(s.dir(), upName)), s.Start(t.Context())))
	if got := sees(t, e, s, "two"); got != "two" {
		t.Errorf("it sees %q", got)
	}
}

func TestADisposableSandboxForgetsWhatWasSealed(t *testing.T) {
	proctest.Root(t)
	cfg, e := onPaper(t)
	d := openOn(t, cfg)
	first, _ := create(t, d, driver.Spec{})
	put(t, first, "kept", "x")
	n := snap(t, d, first, "n")
	s, _ := create(t, d, driver.Spec{Snapshot: n.Name, Disposable: true})
	put(t, s, "mine", "y")
	snap(t, d, s, "m")
	proctest.Must(t, s.Stop(t.Context()))
	put(t, s, "mine", "y")
	snap(t, d, s, "o")
	proctest.Must(t, errors.Join(s.Start(t.Context()), s.Stop(t.Context()), s.Start(t.Context())))
	if sees(t, e, s, "kept") != "x" || sees(t, e, s, "mine") != "" {
		t.Error("it does not begin anew")
	}
}

func TestAChainThatIsTooLongIsMerged(t *testing.T) {
	proctest.Root(t)
	cfg, e := onPaper(t)
	d := openOn(t, cfg)
	s, _ := create(t, d, driver.Spec{})
	for i := range layer.MaxDepth + 3 {
		put(t, s, "f", strings.Repeat("x", i))
		put(t, s, "g"+strings.Repeat("g", i), "y")
		proctest.Must(t, s.Stop(t.Context()))
		snap(t, d, s, "")
		proctest.Must(t, s.Start(t.Context()))
	}
	e.mu.Lock()
	depth := len(e.specs[container.ID(s.id)].Layers)
	e.mu.Unlock()
	if depth > 4 || sees(t, e, s, "f") != strings.Repeat("x", layer.MaxDepth+2) || sees(t, e, s, "g") != "y" {
		t.Errorf("%d layers, f is %q", depth, sees(t, e, s, "f"))
	}
}

func TestASnapshotThatFailsLeavesTheSandboxGoing(t *testing.T) {
	proctest.Root(t)
	cfg, e := onPaper(t)
	d := openOn(t, cfg)
	s, _ := create(t, d, driver.Spec{})
	put(t, s, "f", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Snapshot(ctx, s.id, driver.SnapshotSpec{Name: "n"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if in, err := e.of(container.ID(s.id), func(*container.Info) {}); err != nil || in.Frozen {
		t.Errorf("%+v, %v", in, err)
	}
	if _, err := d.GetSnapshot(t.Context(), "n"); !errors.Is(err, driver.ErrNotFound) {
		t.Error(err)
	}
	proctest.Must(t, d.layers.Sweep(t.Context(), 0))
	if names, err := os.ReadDir(filepath.Join(cfg.Dir, layersName)); err != nil || len(names) != 2 {
		t.Errorf("left %v, %v", names, err)
	}
}

// Several snapshots have one name by their tags, and a tag moves to the newest, which
// outlives a server.
func TestTagsOfSnapshots(t *testing.T) {
	cfg, _ := onPaper(t)
	d := openOn(t, cfg)
	s := proctest.Value(d.Create(t.Context(), driver.Spec{}))(t)
	take := func(name, tag string) (driver.Snapshot, error) {
		return d.Snapshot(t.Context(), info(t, s).ID, driver.SnapshotSpec{Name: name, Tag: tag})
	}
	first, v1 := proctest.Value(take("app", "latest"))(t), proctest.Value(take("app", "v1"))(t)
	latest := proctest.Value(take("app", "latest"))(t)
	plain := proctest.Value(take("plain", ""))(t)
	for _, c := range []struct{ name, tag string }{{"app", ""}, {"plain", ""}} {
		if _, err := take(c.name, c.tag); !errors.Is(err, driver.ErrExists) {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, tag := range []string{":", ".a", "a b", "a/b", strings.Repeat("a", 129), "\x00"} {
		if _, err := take("app", tag); err == nil || !strings.Contains(err.Error(), "tag") {
			t.Errorf("the tag %q: %v", tag, err)
		}
	}
	for range 2 {
		for key, want := range map[string]driver.ID{
			"app": latest.ID, "app:latest": latest.ID, "app:v1": v1.ID, string(first.ID): first.ID, "plain": plain.ID,
			"app:v2": "", "plain:latest": "", "app:": "", "plain:": plain.ID,
		} {
			got, err := d.GetSnapshot(t.Context(), key)
			if got.ID != want || (err == nil) != (want != "") {
				t.Errorf("%s is %v, %v", key, got, err)
			}
		}
		if got := proctest.Value(d.GetSnapshot(t.Context(), string(first.ID)))(t); got.Tag != "" || got.Name != "app" {
			t.Errorf("the first is %+v", got)
		}
		d = openOn(t, cfg)
	}
	proctest.Must(t, d.DeleteSnapshot(t.Context(), "app:latest"))
	if _, err := d.GetSnapshot(t.Context(), "app"); !errors.Is(err, driver.ErrNotFound) {
		t.Error("a tag that has moved comes back:", err)
	}
}
