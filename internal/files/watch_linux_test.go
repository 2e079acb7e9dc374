package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/support/proctest"
)

// limit bounds the wait for an event that does not come; it is no assertion
// about speed.
const limit = time.Minute

func watch(t *testing.T, f FS, path string, opts WatchOptions) Watcher {
	t.Helper()
	w, err := f.Watch(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// until reads events up to the wanted one and returns all.
func until(t *testing.T, w Watcher, name string, op Op) []Event {
	t.Helper()
	timeout := time.After(limit)
	var all []Event
	for {
		select {
		case <-w.Ready():
		case <-timeout:
			t.Fatalf("no %s of %s in %v", op, name, all)
		}
		events, err := w.Take()
		all = append(all, events...)
		for _, e := range events {
			if e.Name == name && e.Op == op {
				return all
			}
		}
		if err != nil {
			t.Fatalf("ended with %v after %v", err, all)
		}
	}
}

func count(events []Event, name string, op Op) (n int) {
	for _, e := range events {
		if e.Name == name && e.Op == op {
			n++
		}
	}
	return n
}

func TestWatchTellsEachKindOfChange(t *testing.T) {
	f := self(t)
	at := func(name string) string { return filepath.Join(f.User.Home, name) }
	w := watch(t, f, "", WatchOptions{IncludeEntry: true})
	steps := []struct {
		name string
		do   func() error
		file string
		op   Op
	}{
		{"create", func() error { return os.WriteFile(at("a"), []byte("x"), 0o600) }, "a", OpWrite},
		{"chmod", func() error { return os.Chmod(at("a"), 0o644) }, "a", OpChmod},
		{"rename tells the old name", func() error { return os.Rename(at("a"), at("b")) }, "a", OpRename},
		{"and the new one", func() error { return nil }, "b", OpCreate},
		{"remove", func() error { return os.Remove(at("b")) }, "b", OpRemove},
	}
	var rest []Event
	for _, s := range steps {
		proctest.Must(t, s.do())
		if count(rest, s.file, s.op) > 0 {
			continue
		}
		rest = until(t, w, s.file, s.op)
		for _, e := range rest {
			if (e.Op == OpRemove || e.Op == OpRename) && e.Entry != nil {
				t.Errorf("%s: %s carries an entry", s.name, e.Op)
			}
			if e.Op == OpChmod && (e.Entry == nil || e.Entry.Mode != 0o644) {
				t.Errorf("%s: entry %+v", s.name, e.Entry)
			}
		}
	}
}

func TestRecursiveWatchFollowsNewDirectories(t *testing.T) {
	f := self(t)
	at := func(name string) string { return filepath.Join(f.User.Home, name) }
	proctest.Must(t, os.MkdirAll(at("old/deep"), 0o755))
	w := watch(t, f, "", WatchOptions{Recursive: true})
	proctest.Must(t, os.WriteFile(at("old/deep/f"), []byte("x"), 0o600))
	until(t, w, "old/deep/f", OpWrite)

	// All of this is there before a watch on it can be.
	proctest.Must(t, os.MkdirAll(at("n1/n2/n3"), 0o755))
	proctest.Must(t, os.WriteFile(at("n1/n2/n3/f"), []byte("x"), 0o600))
	all := until(t, w, "n1/n2/n3/f", OpWrite)
	for _, name := range []string{"n1", "n1/n2", "n1/n2/n3", "n1/n2/n3/f"} {
		if n := count(all, name, OpCreate); n != 1 {
			t.Errorf("%s was told as created %d times: %v", name, n, all)
		}
	}

	// A directory that is renamed is followed under its new name.
	proctest.Must(t, os.Rename(at("n1/n2"), at("moved")))
	until(t, w, "moved/n3/f", OpCreate)
	proctest.Must(t, os.WriteFile(at("moved/n3/later"), nil, 0o600))
	all = until(t, w, "moved/n3/later", OpCreate)
	if n := count(all, "n1/n2/n3/later", OpCreate); n != 0 {
		t.Errorf("told under the old name: %v", all)
	}
	proctest.Must(t, os.RemoveAll(at("moved")))
	until(t, w, "moved", OpRemove)
}

func TestNewDirectoriesAreNotFollowedUnlessRecursive(t *testing.T) {
	f := self(t)
	at := func(name string) string { return filepath.Join(f.User.Home, name) }
	w := watch(t, f, "", WatchOptions{})
	for _, step := range []func() error{
		func() error { return os.Mkdir(at("d"), 0o755) },
		func() error { return os.WriteFile(at("d/hidden"), nil, 0o600) },
		func() error { return os.WriteFile(at("end"), nil, 0o600) },
	} {
		proctest.Must(t, step())
	}
	if all := until(t, w, "end", OpCreate); count(all, "d/hidden", OpCreate) != 0 {
		t.Errorf("told %v", all)
	}
}

func TestOverflowIsToldAfterTheEventsBeforeIt(t *testing.T) {
	f := self(t)
	w := watch(t, f, "", WatchOptions{Queue: 3}).(*Watch)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		proctest.Must(t, os.Mkdir(filepath.Join(f.User.Home, name), 0o755))
	}
	deadline := time.After(limit)
	for {
		w.mu.Lock()
		ended := w.err != nil
		w.mu.Unlock()
		if ended {
			break
		}
		select {
		case <-w.Ready():
		case <-deadline:
			t.Fatal("no overflow")
		}
	}
	events, err := w.Take()
	if len(events) != 3 || !errors.Is(err, ErrOverflow) {
		t.Errorf("%d events, %v", len(events), err)
	}
	if _, err := w.Take(); !errors.Is(err, ErrOverflow) {
		t.Errorf("the error does not stay: %v", err)
	}
}

// Long names are bounded by what they take, long before they are many.
func TestWatchOverflowsByBytes(t *testing.T) {
	f := tree(t)
	deep := f.User.Home
	for range 12 {
		deep = filepath.Join(deep, strings.Repeat("d", 250))
	}
	proctest.Must(t, os.MkdirAll(deep, 0o755))
	w := watch(t, f, "", WatchOptions{Recursive: true}).(*Watch)
	for n := range 2000 { // 6 MB
		proctest.Must(t, os.WriteFile(filepath.Join(deep, strconv.Itoa(n)), nil, 0o644))
	}
	proctest.Eventually(t, "it overflows", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.err != nil
	})
	events, err := w.Take()
	if len(events) < 500 || len(events) > 1400 || !errors.Is(err, ErrOverflow) {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestWatchRefusals(t *testing.T) {
	f := tree(t)
	for path, want := range map[string]error{"missing": ErrNotExist, "dir/file": ErrNotDir, "fifo": ErrNotDir, "loop": ErrLoop} {
		if _, err := f.Watch(path, WatchOptions{}); !errors.Is(err, want) {
			t.Errorf("watch %s: %v, want %v", path, err, want)
		}
	}
}

// TestAnUploadIsToldAsByTheOriginal: it makes the file, gives it to its owner
// and writes it, and watchers are told each once.
func TestAnUploadIsToldAsByTheOriginal(t *testing.T) {
	f := self(t)
	w := watch(t, f, "", WatchOptions{})
	for _, tt := range []struct {
		name, file, content string
		want                []Op
	}{
		{"a new file", "a", "x", []Op{OpCreate, OpChmod, OpWrite}},
		{"a new file with nothing in it", "b", "", []Op{OpCreate, OpChmod}},
	} {
		if _, err := f.Write(tt.file, strings.NewReader(tt.content), nil); err != nil {
			t.Fatal(err)
		}
		end := tt.file + ".end"
		proctest.Must(t, os.Mkdir(filepath.Join(f.User.Home, end), 0o755))
		var got []Op
		for _, e := range until(t, w, end, OpCreate) {
			if e.Name == tt.file {
				got = append(got, e.Op)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s is told as %v, want %v", tt.name, got, tt.want)
		}
	}
}

// What is not followed is not watched, and does not count among the directories.
func TestARecursiveWatchFollowsWhatItIsTold(t *testing.T) {
	f := self(t)
	dir := f.User.Home
	for _, name := range []string{"src/deep", "left/out/far"} {
		proctest.Must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "src/deep/a"), nil, 0o600))
	opts := WatchOptions{Recursive: true, Found: true, MaxDirs: 3, Follow: func(name string) bool { return !strings.HasPrefix(name, "left") }}
	w := proctest.Value(f.Watch(dir, opts))(t)
	seen := until(t, w, "src/deep/a", OpCreate)
	for _, name := range []string{"left/out/b", "left/c"} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	proctest.Must(t, os.MkdirAll(filepath.Join(dir, "left/new"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "src/d"), nil, 0o600))
	for _, e := range append(seen, until(t, w, "src/d", OpCreate)...) {
		if strings.HasPrefix(e.Name, "left/") {
			t.Errorf("%s was reported", e.Name)
		}
	}
	proctest.Must(t, w.Close())
	opts.MaxDirs = 1
	if w, err := f.Watch(dir, opts); !errors.Is(err, ErrWatchLimit) {
		t.Errorf("with one directory too many: %v, %v", w, err)
	}
}

// What is kept for a reader is charged for: without room the watch overflows, and all is given
// back once the reader has gone on, or has left.
func TestAWatchIsCharged(t *testing.T) {
	f := tree(t)
	whole := budget.New(64 << 10)
	held := whole.Charge(budget.Sandbox("a"))
	w := watch(t, f, "", WatchOptions{Held: held}).(*Watch)
	name := strings.Repeat("n", 200)
	proctest.Must(t, os.WriteFile(filepath.Join(f.User.Home, name), nil, 0o644))
	proctest.Eventually(t, "an event is charged for", func() bool { return whole.Used() > 200 })
	events, err := w.Take()
	if len(events) == 0 || err != nil || whole.Used() < 200 {
		t.Errorf("taken: %d events, %v, %d bytes are held", len(events), err, whole.Used())
	}
	proctest.Eventually(t, "what was taken before is given back", func() bool {
		events, err := w.Take()
		return len(events) == 0 && err == nil && whole.Used() == 0
	})
	for n := range 200 { // 60 KB, and a quarter of 64 KiB for one
		proctest.Must(t, os.WriteFile(filepath.Join(f.User.Home, name+strconv.Itoa(n)), nil, 0o644))
	}
	proctest.Eventually(t, "it overflows", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.err != nil
	})
	if used := whole.UsedBy(budget.Sandbox("a")); used > 16<<10 {
		t.Errorf("%d bytes are held", used)
	}
	if events, err := w.Take(); len(events) == 0 || !errors.Is(err, ErrOverflow) {
		t.Errorf("%d events, %v", len(events), err)
	}
	w.Close()
	if whole.Used() != 0 {
		t.Errorf("%d bytes are held of a closed watch", whole.Used())
	}
}

// remembered is what the names take that a closed watch has remembered, in bytes.
func remembered(w *Watch) (n int64) {
	for _, names := range []map[string]bool{w.dirs, w.reported} {
		for name := range names {
			n += int64(len(name))
		}
	}
	return n
}

// What was in a directory before it was moved into a watched one is not remembered, so no reader
// can make a watch grow, and new directories are charged for.
func TestAWatchChargesForWhatItRemembers(t *testing.T) {
	const times, each = 10, 1000
	f := self(t)
	at := func(name string) string { return filepath.Join(f.User.Home, name) }
	long := strings.Repeat("n", 200)
	proctest.Must(t, os.MkdirAll(at("watched"), 0o755))
	proctest.Must(t, os.WriteFile(at("file"), nil, 0o600))
	whole := budget.New(64 << 20)
	held := whole.Charge(budget.Sandbox("a"))
	w := watch(t, f, "watched", WatchOptions{Recursive: true, Held: held}).(*Watch)
	for n := range times {
		dir := fmt.Sprint(long, n)
		proctest.Must(t, os.Mkdir(at(dir), 0o755))
		for i := range each {
			proctest.Must(t, os.Link(at("file"), at(fmt.Sprintf("%s/%s%03d", dir, long, i))))
		}
		proctest.Must(t, os.Rename(at(dir), at("watched/"+dir)))
		if all := until(t, w, fmt.Sprintf("%s/%s%03d", dir, long, each-1), OpCreate); len(all) != each+1 {
			t.Fatalf("%d events of a directory of %d", len(all), each)
		}
		// It has another name, and then none that is watched.
		proctest.Must(t, os.Rename(at("watched/"+dir), at("watched/x"+dir)))
		until(t, w, fmt.Sprintf("x%s/%s%03d", dir, long, each-1), OpCreate)
	}
	// What comes behind the last directory says that its listing is given back.
	proctest.Must(t, os.WriteFile(at("watched/end"), nil, 0o600))
	until(t, w, "end", OpCreate)
	for {
		events, err := w.Take() // twice, so that no event is charged for
		proctest.Must(t, err)
		if len(events) == 0 {
			break
		}
	}
	charged := whole.UsedBy(budget.Sandbox("a"))
	proctest.Must(t, w.Close())
	if got := remembered(w); got > charged || charged < times*200 || charged > times*each*200/10 {
		t.Errorf("%d bytes are remembered, and %d charged for", got, charged)
	}
	if whole.Used() != 0 {
		t.Errorf("%d bytes are held of a closed watch", whole.Used())
	}
}

// Directories that are watched are charged for: without room there is no watch, or it ends, and
// those that are gone are given back.
func TestAWatchChargesForItsDirectories(t *testing.T) {
	const dirs = 200
	f := self(t)
	at := func(n int) string { return filepath.Join(f.User.Home, strings.Repeat("d", 200)+strconv.Itoa(n)) }
	fill := func() {
		for n := range dirs {
			proctest.Must(t, os.Mkdir(at(n), 0o755))
		}
	}
	fill()
	whole := budget.New(64 << 10)
	if _, err := f.Watch("", WatchOptions{Recursive: true, Held: whole.Charge(budget.Sandbox("a"))}); err == nil {
		t.Error("there is a watch without room")
	} else if _, busy := errors.AsType[*budget.BusyError](err); !busy {
		t.Errorf("without room: %v", err)
	}
	if whole.Used() != 0 {
		t.Errorf("%d bytes are held of no watch", whole.Used())
	}
	whole = budget.New(1 << 20)
	w := watch(t, f, "", WatchOptions{Recursive: true, Held: whole.Charge(budget.Sandbox("a"))})
	if got := whole.Used(); got < dirs*200 {
		t.Errorf("%d bytes are held of %d directories", got, dirs)
	}
	for n := range dirs {
		proctest.Must(t, os.Remove(at(n)))
	}
	proctest.Eventually(t, "what is gone is given back", func() bool {
		_, err := w.Take()
		return err == nil && whole.Used() == 0
	})
	rest := whole.Charge(budget.Sandbox("a")) // another one's
	for rest.Add(1<<10) == nil {
	}
	fill()
	proctest.Eventually(t, "the watch ends", func() bool {
		_, err := w.Take()
		return errors.Is(err, ErrOverflow)
	})
}

// A listing is charged for to the request that it is for.
func TestAListingIsCharged(t *testing.T) {
	f := tree(t)
	dir := filepath.Join(f.User.Home, "many")
	proctest.Must(t, os.Mkdir(dir, 0o755))
	for n := range 2000 {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(n)), nil, 0o644))
	}
	whole := budget.New(16 << 20)
	charge := whole.Charge(budget.Sandbox("a"))
	if list, err := f.List(budget.With(t.Context(), charge), dir, 1); err != nil || len(list) != 2000 || charge.Held() < 2000*500 {
		t.Errorf("%d entries, %v, charged for with %d", len(list), err, charge.Held())
	}
	charge.Release()
	charge = budget.New(1 << 20).Charge(budget.Sandbox("a"))
	_, err := f.List(budget.With(t.Context(), charge), dir, 1)
	if _, busy := errors.AsType[*budget.BusyError](err); !busy || charge.Held() > 1<<18 {
		t.Errorf("without room: %v, %d are held", err, charge.Held())
	}
}
