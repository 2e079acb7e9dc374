package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/drivertest"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func open(t *testing.T, cfg Config) *Driver {
	t.Helper()
	if cfg.Manager == nil {
		cfg.Manager = testkeeper.New(t)
	}
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "boxes")
	}
	d, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDriver(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) driver.Driver { return open(t, Config{}) })
}

func TestSandboxesSurviveTheServer(t *testing.T) {
	t.Parallel()
	cfg := Config{Manager: testkeeper.New(t), Dir: t.TempDir()}
	first := open(t, cfg)
	s, err := first.Create(t.Context(), driver.Spec{Name: "kept", IdleTTL: time.Hour, Deadline: time.Now().Add(time.Hour).UTC(),
		AtDeadline: driver.ActionPause, Wake: true, Network: driver.Network{Public: true}, Notes: map[string]string{"n": "2"}, Run: driver.RunConfig{Env: map[string]string{"A": "b"}}, Metadata: map[string]string{"m": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	want, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Processes().Start(t.Context(), process.Spec{Shell: "sleep 600"})
	if err != nil {
		t.Fatal(err)
	}
	// What a crash leaves in the middle of a creation, and a record cut short.
	proctest.Must(t, os.Mkdir(filepath.Join(cfg.Dir, "half"), 0o700))
	torn := filepath.Join(cfg.Dir, "torn")
	proctest.Must(t, errors.Join(os.Mkdir(torn, 0o700), os.WriteFile(filepath.Join(torn, sandboxrecord.RecordName), []byte(`{"id":`), 0o600)))

	second := open(t, cfg)
	infos, err := second.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]driver.Info{want}, infos); d != "" {
		t.Error(d)
	}
	again, err := second.Get(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Processes().Get(t.Context(), process.Selector{ID: p.ID()}); err != nil {
		t.Errorf("its process: %v", err)
	}
}

func TestWhatBecomesOfSandboxesIsTold(t *testing.T) {
	t.Parallel()
	var told []string
	cfg := Config{Manager: testkeeper.New(t), Dir: t.TempDir(), Tell: func(e driver.Event) {
		told = append(told, strings.TrimSpace(e.Info.Name+" "+string(e.Kind)+" "+e.Reason))
	}}
	d := open(t, cfg)
	s, err := d.Create(t.Context(), driver.Spec{Name: "a"})
	proctest.Must(t, err)
	later := time.Now().Add(time.Hour)
	for _, c := range []driver.Change{{Metadata: map[string]string{"k": "v"}}, {Deadline: &later}, {Deadline: &later}} {
		_, err := s.Update(t.Context(), c)
		proctest.Must(t, err)
	}
	ctx := t.Context()
	proctest.Must(t, errors.Join(s.Stop(ctx), s.Stop(ctx), s.Start(ctx), s.Start(ctx), s.Destroy(ctx), s.Destroy(ctx)))
	_, err = d.Create(t.Context(), driver.Spec{Name: "b", Deadline: time.Now()})
	proctest.Must(t, err)
	d.sweep(t.Context(), time.Now())
	want := []string{"a created", "a updated", "a paused", "a resumed", "a destroyed request", "b created", "b destroyed timeout"}
	if !slices.Equal(told, want) {
		t.Errorf("told is %q, want %q", told, want)
	}
}

func TestADeadlineThatPassedMeanwhileIsKept(t *testing.T) {
	t.Parallel()
	cfg := Config{Manager: testkeeper.New(t), Dir: t.TempDir()}
	s, err := open(t, cfg).Create(t.Context(), driver.Spec{Name: "late", Deadline: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	again := open(t, cfg)
	again.sweep(t.Context(), time.Now())
	if infos, err := again.List(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("there is %+v, %v", infos, err)
	}
	if _, err := os.Stat(s.(*sandbox).home()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still on disk: %v", err)
	}
}

func TestTimesAreKept(t *testing.T) {
	t.Parallel()
	d := open(t, Config{})
	s, err := d.Create(t.Context(), driver.Spec{Name: "timed", IdleTTL: time.Hour, DeleteAfterStop: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Processes().Start(t.Context(), process.Spec{Shell: "sleep 600"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	state := func() driver.State {
		t.Helper()
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State
	}
	if d.sweep(t.Context(), now.Add(2*time.Hour)); state() != driver.Ready {
		t.Fatal("a sandbox with a running process was stopped")
	}
	if _, err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d.sweep(t.Context(), now.Add(30*time.Minute)); state() != driver.Ready {
		t.Fatal("a sandbox was stopped before its time")
	}
	if d.sweep(t.Context(), now.Add(3*time.Hour)); state() != driver.Stopped {
		t.Fatal("an idle sandbox was not stopped")
	}
	if d.sweep(t.Context(), now.Add(30*time.Minute)); state() != driver.Stopped {
		t.Fatal("a stopped sandbox changed before its time")
	}
	d.sweep(t.Context(), now.Add(5*time.Hour))
	if _, err := s.Info(t.Context()); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("a stopped sandbox was not destroyed: %v", err)
	}
}

func TestADestructionThatWasCutShortEnds(t *testing.T) {
	t.Parallel()
	cfg := Config{Manager: testkeeper.New(t), Dir: t.TempDir()}
	d := open(t, cfg)
	s, err := d.Create(t.Context(), driver.Spec{Name: "doomed"})
	if err != nil {
		t.Fatal(err)
	}
	b := s.(*sandbox)
	b.rec.Destroying = true
	proctest.Must(t, b.rec.write(b.home()))
	again := open(t, cfg)
	if _, err := again.Get(t.Context(), "doomed"); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("it is found: %v", err)
	}
	again.sweep(t.Context(), time.Now())
	if _, err := os.Stat(b.home()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still on disk: %v", err)
	}
}
