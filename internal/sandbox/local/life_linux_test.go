package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

func create(t *testing.T, d *Driver, spec driver.Spec) (*sandbox, driver.Info) {
	t.Helper()
	s, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*sandbox), info(t, s)
}

func info(t *testing.T, s driver.Sandbox) driver.Info {
	t.Helper()
	in, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestSandboxesAndContainersMeetAgain(t *testing.T) {
	t.Parallel()
	cfg, e := onPaper(t)
	d := openOn(t, cfg)
	pause := func(s *sandbox, memory bool) {
		t.Helper()
		proctest.Must(t, d.Pause(t.Context(), s.id, driver.PauseSpec{Memory: memory}))
	}
	lives, want := create(t, d, driver.Spec{Name: "lives", Deadline: time.Now().Add(time.Hour).UTC(), Network: driver.Network{Deny: []string{"0.0.0.0/0"}}})
	lost, _ := create(t, d, driver.Spec{Name: "lost"})
	stopped, _ := create(t, d, driver.Spec{Name: "stopped"})
	proctest.Must(t, stopped.Stop(t.Context()))
	frozen, _ := create(t, d, driver.Spec{Name: "frozen"})
	pause(frozen, true)
	thawed, _ := create(t, d, driver.Spec{Name: "frozen-lost"})
	pause(thawed, true)
	doomed, _ := create(t, d, driver.Spec{Name: "doomed"})
	doomed.mu.Lock()
	doomed.rec.Destroying = true
	proctest.Must(t, sandboxrecord.Write(doomed.dir(), &doomed.rec, false))
	doomed.mu.Unlock()
	half := driver.NewID()
	proctest.Must(t, os.MkdirAll(filepath.Join(cfg.Dir, string(half), upName), 0o700))
	stray := driver.NewID()
	st := container.Spec{ID: container.ID(stray), Dir: filepath.Join(cfg.Dir, string(half))}
	proctest.Must(t, errors.Join(os.Mkdir(filepath.Join(st.Dir, workName), 0o700), func() error { _, err := e.Make(t.Context(), st); return err }()))
	for _, s := range []*sandbox{lost, thawed} {
		proctest.Must(t, e.End(t.Context(), container.ID(s.id)))
	}

	again := openOn(t, cfg)
	all, err := again.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]driver.State{}
	for _, in := range all {
		states[in.Name] = in.State
		if in.Name == "lost" && in.Reason == "" {
			t.Error("nothing says why it is stopped")
		}
	}
	if diff := cmp.Diff(map[string]driver.State{
		"lives": driver.Ready, "lost": driver.Stopped, "stopped": driver.Stopped, "frozen": driver.Paused, "frozen-lost": driver.Paused,
	}, states); diff != "" {
		t.Error(diff)
	}
	found, err := again.Get(t.Context(), "lives")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, info(t, found)); diff != "" {
		t.Error(diff)
	}
	again.sweep(t.Context(), time.Now())
	ids := []driver.ID{lives.id, frozen.id}
	slices.Sort(ids)
	if diff := cmp.Diff(ids, e.ids()); diff != "" {
		t.Errorf("containers that are left:\n%s", diff)
	}
	for _, id := range []driver.ID{doomed.id, half} {
		if _, err := os.Stat(filepath.Join(cfg.Dir, string(id))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is still on disk: %v", err)
		}
	}
	// What was lost while it was paused starts again.
	proctest.Must(t, again.Resume(t.Context(), thawed.id))
	if s, err := again.Get(t.Context(), string(thawed.id)); err != nil || info(t, s).State != driver.Ready {
		t.Errorf("resumed: %v", err)
	}
}

func TestACreationThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	cfg, e := onPaper(t)
	d := openOn(t, cfg)
	for what, do := range map[string]func() error{
		"no room": func() error {
			e.fail = process.ErrLimit
			_, err := d.Create(t.Context(), driver.Spec{Name: "a"})
			if !errors.Is(err, process.ErrLimit) {
				t.Errorf("it is %v", err)
			}
			return err
		},
		"no such share": func() error {
			e.fail = &process.InvalidError{Field: "binds[0].source", Reason: "is not there"}
			_, err := d.Create(t.Context(), driver.Spec{Name: "a", Shares: []driver.Share{{Source: "/nowhere"}}})
			if invalid, ok := errors.AsType[*driver.InvalidError](err); !ok || invalid.Field != "shares[0].source" {
				t.Errorf("it is %v", err)
			}
			return err
		},
		"no such user": func() error {
			_, err := d.Create(t.Context(), driver.Spec{Name: "a", Run: driver.RunConfig{User: "no-such-user-here"}})
			if invalid, ok := errors.AsType[*driver.InvalidError](err); !ok || invalid.Field != "run.user" {
				t.Errorf("it is %v", err)
			}
			return err
		},
		"the daemon's own files": func() error {
			_, err := d.Create(t.Context(), driver.Spec{Name: "a", Shares: []driver.Share{{Source: filepath.Dir(cfg.Dir)}}})
			return err
		},
	} {
		if do() == nil {
			t.Errorf("%s: it is made", what)
		}
		all, err := d.List(t.Context())
		if err != nil || len(all) != 0 || len(e.ids()) != 0 {
			t.Errorf("%s: there is %+v, %v; containers %v", what, all, err, e.ids())
		}
		entries, err := os.ReadDir(cfg.Dir)
		if entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name()[0] == '.' }); err != nil || len(entries) != 0 {
			t.Errorf("%s: on the disk there is %v, %v", what, entries, err)
		}
	}
	create(t, d, driver.Spec{Name: "a"})
}

func TestAContainerThatEndsByItselfStopsItsSandbox(t *testing.T) {
	t.Parallel()
	cfg, e := onPaper(t)
	d := openOn(t, cfg)
	s, _ := create(t, d, driver.Spec{Disposable: true})
	other, _ := create(t, d, driver.Spec{})
	proctest.Must(t, e.End(t.Context(), container.ID(s.id)))
	stray := container.Spec{ID: container.ID(driver.NewID()), Dir: other.dir()}
	if _, err := e.Make(t.Context(), stray); err != nil {
		t.Fatal(err)
	}
	d.sweep(t.Context(), time.Now())
	if ids := e.ids(); !slices.Equal(ids, []driver.ID{other.id}) {
		t.Errorf("the containers are %v", ids)
	}
	if in := info(t, s); in.State != driver.Stopped || in.Reason == "" {
		t.Errorf("it is %+v", in)
	}
	if in := info(t, other); in.State != driver.Ready {
		t.Errorf("the other is %+v", in)
	}
	proctest.Must(t, s.Start(t.Context()))
	if in := info(t, s); in.State != driver.Ready || in.Reason != "" {
		t.Errorf("started, it is %+v", in)
	}
}

func TestADeadlineRestsWhileASandboxIsPaused(t *testing.T) {
	t.Parallel()
	cfg, e := onPaper(t)
	d := openOn(t, cfg)
	at := time.Now().Add(time.Hour)
	s, _ := create(t, d, driver.Spec{Deadline: at})
	proctest.Must(t, d.Pause(t.Context(), s.id, driver.PauseSpec{Memory: true}))
	if in := info(t, s); in.State != driver.Paused || in.PausedAt.IsZero() {
		t.Errorf("it is %+v", in)
	}
	if err := d.Pause(t.Context(), s.id, driver.PauseSpec{Memory: true}); !errors.Is(err, driver.ErrPaused) {
		t.Errorf("a second pause: %v", err)
	}
	if _, err := s.Processes().Start(t.Context(), process.Spec{Shell: "true"}); !errors.Is(err, driver.ErrPaused) {
		t.Errorf("a start: %v", err)
	}
	d.sweep(t.Context(), at.Add(time.Hour))
	proctest.Must(t, d.Resume(t.Context(), s.id))
	if in, _ := e.of(container.ID(s.id), func(*container.Info) {}); in.Frozen || info(t, s).Deadline.IsZero() {
		t.Errorf("resumed in time, it is %+v, %+v", in, info(t, s))
	}
	proctest.Must(t, d.Resume(t.Context(), s.id)) // it is ready
	d.sweep(t.Context(), at.Add(time.Hour))
	if _, err := s.Info(t.Context()); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("after its time: %v", err)
	}
}

// TestTheDaemonsProcIsSharedByChoice: where containers would see the /proc of the daemon there are none without the operator's word.
func TestTheDaemonsProcIsSharedByChoice(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		cfg, e := onPaper(t)
		e.way, cfg.SharedProc = "ids=1 proc=shared", shared
		d := openOn(t, cfg)
		_, err := d.Create(t.Context(), driver.Spec{})
		if refused := err != nil && strings.Contains(err.Error(), "--sandbox-proc shared"); refused == shared || shared && err != nil {
			t.Errorf("shared %v: %v", shared, err)
		}
		if missing := strings.Join(d.Capabilities().Missing, ";"); strings.Contains(missing, "--sandbox-proc shared") == shared {
			t.Errorf("shared %v: missing is %q", shared, missing)
		}
	}
}

// TestWhereThereAreNoContainersACreationSaysWhy: and the keeper is left alone otherwise. When
// another one takes its place, sandboxes can be made.
func TestWhereThereAreNoContainersACreationSaysWhy(t *testing.T) {
	t.Parallel()
	cfg, e := onPaper(t)
	e.lacks = "the moon is full"
	d := openOn(t, cfg)
	var wrong *driver.UnsupportedError
	if _, err := d.Create(t.Context(), driver.Spec{}); !errors.As(err, &wrong) || wrong.Field != "isolation" || wrong.Reason != e.lacks {
		t.Errorf("it is %v", err)
	}
	if can := d.Capabilities(); len(can.Layers) != 0 || len(can.Missing) != 1 || !strings.Contains(can.Missing[0], e.lacks) {
		t.Errorf("it can %+v", can)
	}
	quiet := func() {
		t.Helper()
		before := e.asked
		for range 3 {
			d.sweep(t.Context(), time.Now())
			if all, err := d.List(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("there is %+v, %v", all, err)
			}
		}
		if e.asked != before {
			t.Errorf("the keeper is asked %d times for nothing", e.asked-before)
		}
	}
	quiet()
	e.lacks = ""
	s, _ := create(t, d, driver.Spec{})
	proctest.Must(t, s.Destroy(t.Context()))
	quiet()
}

// TestTheTrashIsEmptiedWhateverIsInIt: a program inside makes what it likes.
func TestTheTrashIsEmptiedWhateverIsInIt(t *testing.T) {
	t.Parallel()
	cfg, _ := onPaper(t)
	d := openOn(t, cfg)
	s, _ := create(t, d, driver.Spec{})
	up, err := os.OpenRoot(filepath.Join(s.dir(), upName))
	proctest.Must(t, err)
	defer up.Close()
	outside := filepath.Join(t.TempDir(), "kept")
	proctest.Must(t, os.WriteFile(outside, nil, 0o600))
	at := up
	for range 300 { // deeper than a path can be long
		proctest.Must(t, errors.Join(at.Mkdir(strings.Repeat("d", 100), 0), at.Chmod(strings.Repeat("d", 100), 0o700)))
		next, err := at.OpenRoot(strings.Repeat("d", 100))
		proctest.Must(t, err)
		if at != up {
			at.Close()
		}
		at = next
		proctest.Must(t, errors.Join(at.WriteFile("f", nil, 0), at.Symlink(filepath.Dir(outside), "l")))
	}
	at.Close()
	for i := range 3000 {
		proctest.Must(t, up.WriteFile(strings.Repeat("n", i%100)+time.Duration(i).String(), nil, 0o600))
	}
	proctest.Must(t, s.Destroy(t.Context()))
	proctest.Must(t, d.empty(t.Context()))
	if left, err := os.ReadDir(d.trash()); err != nil || len(left) != 0 {
		t.Errorf("there is %v, %v", left, err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("what a link led to: %v", err)
	}
}
