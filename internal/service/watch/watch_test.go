package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatCountsAndWhatDoesNot(t *testing.T) {
	m := matcher{paths: []string{"src/**/*.ts", "lib", "*.json", "{a,b}/c"}, ignore: []string{"src/gen", "**/*.test.ts"}}
	for name, want := range map[string]bool{
		"src/a.ts": true, "src/x/y/a.ts": true, "src/a.js": false, "src/gen/a.ts": false, "src/x/a.test.ts": false,
		"lib": true, "lib/any/thing": true, "lib/node_modules/x/y.ts": false, "lib/x.log": false, "lib/.a.ts.swp": false, "lib/a~": false, "lib/4913": false,
		"package.json": true, "x/package.json": false, "a/c": true, "a/c/d": true, "b/d": false, "src/.git/a.ts": false,
	} {
		if got := m.counts(name); got != want {
			t.Errorf("%s counts: %v", name, got)
		}
	}
	for dir, want := range map[string]bool{
		".": true, "src": true, "src/x/y": true, "src/gen": false, "src/gen/x": false, "lib/deep/er": true, "node_modules": false, "lib/node_modules": false,
		"a": true, "a/c": true, "a/d": false, "other": false,
	} {
		if got := m.mayHold(dir); got != want {
			t.Errorf("%s may hold something: %v", dir, got)
		}
	}
}

func TestAChoiceWithSlashesLeadsAnywhere(t *testing.T) {
	m := matcher{paths: []string{"{x/y,z}/*.go"}}
	if !m.mayHold("x/y") || !m.mayHold("z") || !m.counts("x/y/m.go") || !m.counts("z/m.go") || m.counts("y/m.go") {
		t.Error("it is not followed")
	}
}

// scenery is a watched directory.
type scenery struct {
	t    *testing.T
	dir  string
	told chan string
	w    *Watcher
}

func watched(t *testing.T, dir string, rules *config.Watch) *scenery {
	t.Helper()
	s := opened(t, dir, rules)
	s.run("")
	return s
}

// opened is watched, and nothing is told yet.
func opened(t *testing.T, dir string, rules *config.Watch) *scenery {
	t.Helper()
	if rules.Delay == 0 {
		rules.Delay = config.Duration(20 * time.Millisecond)
	}
	s := &scenery{t: t, dir: dir, told: make(chan string, 100)}
	s.w = proctest.Value(Open(dir, rules))(t)
	return s
}

// run begins to tell.
func (s *scenery) run(first string) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.w.Run(ctx, nil, first, Tell{Changed: func(name string) { s.told <- name }}) }()
	s.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, s.w.Close()); err != nil {
			s.t.Errorf("run: %v", err)
		}
	})
}

func (s *scenery) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	proctest.Must(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
	proctest.Must(s.t, os.WriteFile(path, []byte(text), 0o600))
}

// want waits for a change to be told.
func (s *scenery) want(name string) {
	s.t.Helper()
	select {
	case got := <-s.told:
		if got != name {
			s.t.Errorf("%s was told; want %s", got, name)
		}
	case <-time.After(time.Minute):
		s.t.Fatalf("%s is not told", name)
	}
}

// until writes a file until that is told: what was told before is of earlier changes, and
// one that comes at the same time as those is not told.
func (s *scenery) until(name string) {
	s.t.Helper()
	for range 300 {
		s.write(name, "x")
		select {
		case got := <-s.told:
			if got == name {
				return
			}
		case <-time.After(200 * time.Millisecond):
		}
	}
	s.t.Fatalf("%s is not told", name)
}

// nothing makes sure that nothing was told before a last change.
func (s *scenery) nothing() {
	s.t.Helper()
	s.write("src/last.ts", "x")
	s.want("src/last.ts")
}

func TestChangesAreTold(t *testing.T) {
	dir := t.TempDir()
	proctest.Must(t, os.MkdirAll(filepath.Join(dir, "src", "deep"), 0o755))
	s := watched(t, dir, &config.Watch{Paths: config.Strings{"src/**/*.ts"}})
	at := func(name string) string { return filepath.Join(dir, name) }
	s.write("src/a.ts", "1")
	s.want("src/a.ts")
	s.write("src/deep/b.ts", "1")
	s.want("src/deep/b.ts")
	t.Run("an editor that saves by renaming is told once", func(t *testing.T) {
		s.write("src/4913", "")
		proctest.Must(t, os.Remove(at("src/4913")))
		proctest.Must(t, os.Rename(at("src/a.ts"), at("src/a.ts~")))
		s.write("src/a.ts", "2")
		proctest.Must(t, os.Remove(at("src/a.ts~")))
		s.want("src/a.ts")
		s.nothing()
	})
	t.Run("what does not count is not told", func(t *testing.T) {
		s.write("src/x.js", "1")
		s.write("src/node_modules/y.ts", "1")
		s.write("elsewhere/z.ts", "1")
		proctest.Must(t, os.Chmod(at("src/deep/b.ts"), 0o644))
		now := time.Now()
		proctest.Must(t, os.Chtimes(at("src/deep/b.ts"), now, now))
		s.nothing()
	})
	t.Run("a file in a new directory is told, however soon it is there", func(t *testing.T) {
		s.write("src/new/er/c.ts", "1")
		s.want("src/new/er/c.ts")
		s.write("src/new/er/d.ts", "1")
		s.want("src/new/er/d.ts")
	})
	t.Run("a directory that is moved is followed", func(t *testing.T) {
		proctest.Must(t, os.Rename(at("src/new"), at("src/moved")))
		<-s.told
		s.write("src/moved/er/e.ts", "1")
		s.want("src/moved/er/e.ts")
	})
	t.Run("a directory that is removed and made again is followed", func(t *testing.T) {
		proctest.Must(t, os.RemoveAll(at("src")))
		<-s.told
		s.until("src/deep/f.ts")
		s.write("src/deep/g.ts", "1")
		s.want("src/deep/g.ts")
	})
}

func TestABurstIsToldOnce(t *testing.T) {
	const delay = time.Second
	s := watched(t, t.TempDir(), &config.Watch{Paths: config.Strings{"src"}, Delay: config.Duration(delay)})
	bursts, last := 1, time.Now() // at most so many
	for i := range 500 {
		s.write(fmt.Sprintf("src/%d/%d.ts", i%20, i), "x")
		if now := time.Now(); now.Sub(last) > delay/2 { // the disk had no time
			bursts++
		}
		last = time.Now()
	}
	told := 0
	for {
		select {
		case name := <-s.told:
			if name == "src/last.ts" {
				return
			}
			if told++; told > bursts || !strings.HasPrefix(name, "src/") {
				t.Errorf("told %s, as number %d of %d", name, told, bursts)
			}
			s.write("src/last.ts", "x")
		case <-time.After(time.Minute):
			t.Fatalf("%d are told, and not the last", told)
		}
	}
}

// What was found before Run, and what changed on the way to it, is one change.
func TestWhatHasChangedBeforeIsOfTheFirstBurst(t *testing.T) {
	s := opened(t, t.TempDir(), &config.Watch{Paths: config.Strings{"*.ts"}, Delay: config.Duration(time.Second)})
	s.write("a.ts", "1")
	s.run("found before")
	s.want("found before")
	s.write("last.ts", "1")
	s.want("last.ts")
}

func TestTheFirstDirectoryMayComeAndGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "app")
	s := watched(t, dir, &config.Watch{Paths: config.Strings{"src"}})
	s.write("src/a.ts", "1")
	s.want("src/a.ts")
	proctest.Must(t, os.RemoveAll(dir))
	s.until("src/b.ts")
}

// lossy has lost what there was to take.
type lossy struct{ files.Watcher }

func (lossy) Take() ([]files.Event, error) { return nil, files.ErrOverflow }

// Notices that were lost may have been those of a directory that was removed and made
// again: the kernel watches the new one only when it is asked to.
func TestADirectoryThatWasMadeAgainUnseenIsFollowed(t *testing.T) {
	dir := t.TempDir()
	proctest.Must(t, os.Mkdir(filepath.Join(dir, "src"), 0o755))
	s := opened(t, dir, &config.Watch{Paths: config.Strings{"src"}})
	proctest.Must(t, os.Remove(filepath.Join(dir, "src")))
	proctest.Must(t, os.Mkdir(filepath.Join(dir, "src"), 0o755))
	s.w.now = lossy{s.w.now}
	s.run("")
	s.want("more than can be told")
	s.write("src/a.ts", "1")
	s.want("src/a.ts")
}

func TestTooManyDirectoriesAreRefusedByName(t *testing.T) {
	dir := t.TempDir()
	for i := range MaxDirs + 1 {
		proctest.Must(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755))
	}
	rules := &config.Watch{Paths: config.Strings{"**"}}
	var many *TooManyError
	if err := Check(dir, rules); !errors.As(err, &many) || !strings.Contains(err.Error(), "the limit is 10000") {
		t.Errorf("got %v", err)
	}
	if w, err := Open(dir, rules); !errors.As(err, &many) {
		t.Errorf("got %v", err)
		w.Close()
	}
	rules.Ignore = []string{"1*"}
	if err := Check(dir, rules); err != nil {
		t.Errorf("got %v", err)
	}
	if err := Check(filepath.Join(dir, "none"), rules); err != nil {
		t.Errorf("got %v", err)
	}
}

// A Sum is another one when a file that counts is another, and only then.
func TestASumIsOfWhatCounts(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) error {
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(at(name), []byte(text), 0o600)
	}
	proctest.Must(t, write("src/a.ts", "1"))
	proctest.Must(t, write("src/deep/b.ts", "1"))
	rules := &config.Watch{Paths: config.Strings{"src"}, Ignore: config.Strings{"src/gen"}}
	machine := proctest.Value(Open(dir, rules))(t)
	defer machine.Close()
	user := proctest.Value(files.Account(""))(t)
	inside := proctest.Value(OpenIn(files.FS{User: user}, dir, rules))(t)
	defer inside.Close()
	for where, sum := range map[string]func() *Sum{"on this machine": machine.Sum, "in a sandbox": inside.Sum} {
		before := sum()
		if before == nil || before.Files < 2 {
			t.Fatalf("%s: it is %+v", where, before)
		}
		old := time.Now().Add(-time.Hour)
		for _, tt := range []struct {
			what  string
			do    func() error
			other bool
		}{
			{"nothing", func() error { return nil }, false},
			{"what is ignored", func() error { return write("src/gen/x.ts", "1") }, false},
			{"what is elsewhere", func() error { return write("lib/x.ts", "1") }, false},
			{"what never counts", func() error { return write("src/node_modules/x.ts", "1") }, false},
			{"a mode", func() error { return os.Chmod(at("src/a.ts"), 0o640) }, false},
			{"a new directory", func() error { return os.MkdirAll(at("src/empty"), 0o755) }, false},
			{"another size", func() error { return write("src/a.ts", where) }, true},
			{"another time", func() error { return os.Chtimes(at("src/deep/b.ts"), old, old) }, true},
			{"a new file", func() error { return write("src/"+where+".ts", "") }, true},
			{"another name", func() error { return os.Rename(at("src/"+where+".ts"), at("src/"+where+".js")) }, true},
			{"one file less", func() error { return os.Remove(at("src/" + where + ".js")) }, true},
		} {
			proctest.Must(t, tt.do())
			now := sum()
			if now == nil || (*now != *before) != tt.other {
				t.Errorf("%s, %s: it was %+v, and is %+v", where, tt.what, before, now)
			}
			before = now
		}
	}
	for i := range MaxFiles {
		proctest.Must(t, os.Symlink("none", at(fmt.Sprintf("src/deep/%d", i))))
	}
	if s := machine.Sum(); s != nil {
		t.Errorf("of too many files it is %+v", s)
	}
	if s := inside.Sum(); s != nil {
		t.Errorf("of too many files of a sandbox it is %+v", s)
	}
}

// flooded is a directory in which more has changed than a watch keeps, of which only what is
// ignored could be told.
type flooded struct{ Files }

func (flooded) Resolve(path string) (string, error) { return path, nil }

func (f flooded) Watch(string, files.WatchOptions) (files.Watcher, error) { return f, nil }

func (flooded) Root() string           { return "/x" }
func (flooded) Ready() <-chan struct{} { return nil }
func (flooded) Close() error           { return nil }
func (flooded) Take() ([]files.Event, error) {
	return []files.Event{{Name: "log", Op: files.OpWrite}}, files.ErrOverflow
}

// What got lost before a root was let go is a change, too.
func TestTheRestIsAChangeIfSomeOfItIsLost(t *testing.T) {
	w := proctest.Value(OpenIn(flooded{}, "/x", &config.Watch{Paths: config.Strings{"**"}, Ignore: config.Strings{"log"}}))(t)
	if name := w.Rest(); name == "" {
		t.Error("nothing is said to have changed")
	}
}
