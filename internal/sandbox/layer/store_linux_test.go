package layer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

func put(t *testing.T, s *Store, m Meta) ID {
	t.Helper()
	id, err := s.Make(m, func(dir string) error { return os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644) })
	proctest.Must(t, err)
	return id
}

func sweep(t *testing.T, s *Store, cache time.Duration) {
	t.Helper()
	proctest.Must(t, s.Sweep(t.Context(), cache))
	if left, err := os.ReadDir(s.path(trashName)); err != nil || len(left) != 0 {
		t.Errorf("in the trash: %v, %v", left, err)
	}
}

func (s *Store) has(id ID) bool {
	_, err := s.Get(id)
	_, files := os.Stat(s.files(id))
	return err == nil && files == nil
}

func TestALayerStaysWhileItIsNeeded(t *testing.T) {
	proctest.Root(t)
	s := open(t)
	below := put(t, s, Meta{By: "a", Whole: true})
	middle := put(t, s, Meta{By: "a", Parent: below})
	top := put(t, s, Meta{By: "box", Parent: middle})
	step := put(t, s, Meta{By: "build", Key: "k"})
	s.Release(below, "a")
	s.Release(middle, "a")
	s.Release(step, "build")
	sweep(t, s, time.Hour)
	for _, id := range []ID{below, middle, top, step} {
		if !s.has(id) {
			t.Fatalf("%s is gone", id)
		}
	}
	if chain, err := s.Chain(top); err != nil || len(chain.Dirs) != 3 || !chain.Whole || chain.Dirs[2] != s.files(below) {
		t.Errorf("%+v, %v", chain, err)
	}
	if id, ok := s.Find("k", "other"); !ok || id != step {
		t.Errorf("found %q", id)
	}
	sweep(t, s, 0)
	if !s.has(step) {
		t.Error("a step that is held is gone")
	}
	s.Release(step, "other")
	s.Release(top, "another")
	sweep(t, s, 0)
	if s.has(step) || !s.has(top) {
		t.Error("who holds does not count")
	}
	s.Release(top, "box")
	sweep(t, s, 0)
	for _, id := range []ID{below, middle, top} {
		if s.has(id) {
			t.Errorf("%s is still there", id)
		}
	}
	for _, err := range []error{s.Hold(top, "x"), justErr(s.Chain(top)), justErr(s.Make(Meta{Parent: top}, nil))} {
		if !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
}

func justErr[T any](_ T, err error) error { return err }

func TestAChainHasALimit(t *testing.T) {
	s := open(t)
	var top ID
	for range MaxDepth {
		top = put(t, s, Meta{Parent: top, By: "test"})
	}
	if _, err := s.Make(Meta{Parent: top}, nil); !errors.Is(err, ErrTooDeep) {
		t.Fatal(err)
	}
}

// TestADaemonThatEndsBetweenTwoSteps finds whole layers afterwards, and nothing else.
func TestADaemonThatEndsBetweenTwoSteps(t *testing.T) {
	proctest.Root(t)
	s := open(t)
	kept := put(t, s, Meta{By: "test", Key: "k"})
	up := filepath.Join(t.TempDir(), "up")
	proctest.Must(t, os.Mkdir(up, 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(up, "work"), []byte("mine"), 0o644))
	// A copy that was not finished, a seal before the move, something foreign.
	proctest.Must(t, os.MkdirAll(filepath.Join(s.path(newName), string(newID()), filesName), 0o755))
	early := newID()
	proctest.Must(t, os.Mkdir(s.path(string(early)), 0o700))
	proctest.Must(t, writeInfo(s.path(string(early)), &Info{ID: early, From: up}, false))
	proctest.Must(t, os.MkdirAll(filepath.Join(s.dir, "foreign"), 0o700))
	broken := newID()
	proctest.Must(t, os.MkdirAll(s.files(broken), 0o700))
	proctest.Must(t, os.WriteFile(filepath.Join(s.path(string(broken)), infoName), []byte("{"), 0o600))

	s, err := Open(s.dir)
	proctest.Must(t, err)
	if !s.has(kept) || s.has(early) || s.has(broken) {
		t.Error("not the whole ones are there")
	}
	if _, ok := s.Sealed(up); ok {
		t.Error("it is sealed")
	}
	if _, err := os.Stat(filepath.Join(up, "work")); err != nil {
		t.Error(err)
	}
	id, err := s.Seal(up, Meta{Parent: kept, By: "box"})
	proctest.Must(t, err)
	// The sandbox's record does not say it yet.
	s, err = Open(s.dir)
	proctest.Must(t, err)
	if found, ok := s.Sealed(up); !ok || found != id {
		t.Errorf("found %q, want %q", found, id)
	}
	if text, err := os.ReadFile(filepath.Join(s.files(id), "work")); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	proctest.Must(t, s.Hold(id, "box"))
	sweep(t, s, 0)
	if !s.has(kept) || !s.has(id) {
		t.Error("what is held is gone")
	}
	if info, err := s.Get(id); err != nil || !info.Synced || info.Suspect() {
		t.Errorf("%+v, %v", info, err)
	}
	// After a restart of the machine.
	info, err := s.Get(kept)
	proctest.Must(t, err)
	if info.Boot, info.Synced = "another", false; !info.Suspect() {
		t.Error("it is not suspect")
	}
	proctest.Must(t, writeInfo(s.path(string(kept)), &info, false))
	s, err = Open(s.dir)
	proctest.Must(t, err)
	if _, ok := s.Find("k", "x"); ok {
		t.Error("a step that may lack content is used again")
	}
}

// TestWhatWasSealedIsCounted: by the sweep, as a seal takes no time.
func TestWhatWasSealedIsCounted(t *testing.T) {
	s := open(t)
	up := filepath.Join(t.TempDir(), "up")
	proctest.Must(t, os.MkdirAll(filepath.Join(up, "a", "b"), 0o755))
	content := make([]byte, 64<<10)
	for i := range content {
		content[i] = 'x'
	}
	proctest.Must(t, os.WriteFile(filepath.Join(up, "a", "b", "large"), content, 0o644))
	proctest.Must(t, os.Link(filepath.Join(up, "a", "b", "large"), filepath.Join(up, "linked")))
	proctest.Must(t, os.Symlink("/etc", filepath.Join(up, "away")))
	deep := up
	for range 60 {
		deep = filepath.Join(deep, strings.Repeat("d", 60))
	}
	proctest.Must(t, os.MkdirAll(deep, 0o755))
	id, err := s.Seal(up, Meta{By: "box"})
	proctest.Must(t, err)
	sweep(t, s, 0)
	for range 2 {
		info, err := s.Get(id)
		if err != nil || !info.Counted || !info.Synced || info.Entries != 65 || info.Bytes < 64<<10 || info.Bytes > 80<<10 {
			t.Errorf("%+v, %v", info, err)
		}
		s, err = Open(s.dir) // it is on the disk, too
		proctest.Must(t, err)
	}
}

func TestASealThatCannotBeLeavesTheDirectory(t *testing.T) {
	s := open(t)
	up := filepath.Join(t.TempDir(), "up")
	if _, err := s.Seal(up, Meta{By: "x"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if names, err := os.ReadDir(s.dir); err != nil || len(names) != 2 {
		t.Errorf("left %v, %v", names, err)
	}
}

// A store that has nothing says so, and tells of what comes: nobody looks at it until then.
func TestAnEmptyStoreIsLeftAlone(t *testing.T) {
	s := open(t)
	sweep(t, s, 0)
	if !s.Empty() {
		t.Fatal("a new store is not empty")
	}
	for more := true; more; {
		select {
		case <-s.Changed():
		default:
			more = false
		}
	}
	put(t, s, Meta{})
	<-s.Changed()
	if s.Empty() {
		t.Error("a store with a layer is empty")
	}
	sweep(t, s, 0)
	<-s.Changed()
	if !s.Empty() {
		t.Error("a store whose layer was removed is not empty")
	}
}
