package healing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// stage is services that say what a test wants, and the part over a real keeper. Its
// workers are a program that does nothing of what they should.
type stage struct {
	*Healing
	dir string
	end func()

	mu       sync.Mutex
	services []run.Status
	listed   int
}

func (s *stage) List(context.Context) ([]run.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed++
	return slices.Clone(s.services), nil
}

func (s *stage) Restart(context.Context, string, []string) error { return nil }

func (s *stage) Touch(context.Context) {}

func (s *stage) is(name string, st supervisor.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services = []run.Status{{Name: name, Rules: &config.Service{}, State: st}}
}

// play opens the part in a directory and runs it until the test, or end, ends it.
func play(t *testing.T, dir string, m process.Manager, program ...string) *stage {
	t.Helper()
	s := &stage{dir: dir}
	s.Healing = Open(Config{Manager: m, Dir: filepath.Join(dir, "healing"), StateDir: dir, Program: program, Log: slog.New(slog.DiscardHandler)})
	s.Over(s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	s.end = sync.OnceFunc(func() {
		cancel()
		proctest.Must(t, <-done)
	})
	t.Cleanup(s.end)
	return s
}

func project(t *testing.T, service string) (*config.Config, string) {
	t.Helper()
	root := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	return &config.Config{
		Services: map[string]*config.Service{service: {Name: service}},
		Healer:   &config.Healer{Service: service, Root: root, PerDay: 20, Wall: config.Duration(time.Minute), Hold: config.Duration(time.Second)},
	}, root
}

func (s *stage) declare(t *testing.T, c *config.Config, file string) {
	t.Helper()
	proctest.Must(t, s.Declare(t.Context(), c, file, nil))
}

// until waits for what must happen.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("this did not happen: " + what)
		}
	}
}

func (s *stage) statusOf(name string) string {
	st, _, ok := s.Of(name)
	if !ok {
		return ""
	}
	return st.String()
}

// The files of a project that is declared no more are looked at no more.
func TestAnotherProjectEndsTheWatchOfTheOneBefore(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/false")
	one, _ := project(t, "one")
	watched := func() (yes bool) {
		proctest.Must(t, s.in(t.Context(), func() { yes = s.watch != nil }))
		return yes
	}
	s.is("one", supervisor.State{Up: true})
	s.declare(t, one, "/one/tend.yaml")
	proctest.Value(s.Heal(t.Context(), "one", false))(t)
	until(t, "it is broken, and its files are watched", watched)
	two, _ := project(t, "two")
	s.is("two", supervisor.State{Up: true})
	s.declare(t, two, "/two/tend.yaml")
	if watched() {
		t.Error("they are watched")
	}
}

// What becomes of an episode says nothing of another service that is declared meanwhile.
func TestTheEndOfAnEpisodeIsNotThatOfAnotherService(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/false")
	one, _ := project(t, "one")
	two, _ := project(t, "two")
	s.is("one", supervisor.State{Up: true})
	s.declare(t, one, "/one/tend.yaml")
	id := proctest.Value(s.Heal(t.Context(), "one", false))(t)
	s.is("two", supervisor.State{Up: true})
	s.declare(t, two, "/two/tend.yaml")
	calm := func() { // also while the episode is under way
		if got := s.statusOf("two"); got != "running" {
			t.Fatalf("two is %s", got)
		}
	}
	until(t, "the episode is over", func() bool {
		calm()
		e, err := s.Get(t.Context(), id)
		return err == nil && e.Episode.GetEnded() != nil
	})
	until(t, "nothing is under way", func() bool {
		calm()
		return !errors.Is(s.Cancel(t.Context(), ""), nil)
	})
	calm()
}

// The URL of reports learns that a service is well: at the start, of each server, and after a
// person has repaired what the healer could not.
func TestAServiceThatIsWellIsReported(t *testing.T) {
	k := &taker{}
	url := httptest.NewServer(k)
	defer url.Close()
	newest := func(n int, status string) {
		t.Helper()
		until(t, status, func() (yes bool) {
			k.with(func() { yes = len(k.taken) >= n && k.taken[len(k.taken)-1].Status == status })
			return yes
		})
	}
	dir, m := t.TempDir(), testkeeper.New(t)
	s := play(t, dir, m, "/bin/false")
	c, root := project(t, "app")
	c.Healer.Report = &config.Report{URL: url.URL}
	s.is("app", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	ready := func(run int64) {
		s.Saw("app", supervisor.Effect{Notice: supervisor.NoticeStarted, Run: run})
		s.Saw("app", supervisor.Effect{Notice: supervisor.NoticeReady, Run: run})
	}
	ready(1)
	newest(1, "ready")
	s.is("app", supervisor.State{Up: true, Phase: supervisor.Failed})
	s.Saw("app", supervisor.Effect{Notice: supervisor.NoticeFailed, Run: 1})
	newest(3, "broken")
	until(t, "the file of a person arms it again", func() bool {
		proctest.Must(t, os.WriteFile(filepath.Join(root, "app.js"), []byte(time.Now().String()), 0o600))
		return s.statusOf("app") == "running"
	})
	ready(2)
	newest(4, "ready")
	s.end()
	s.is("app", supervisor.State{Up: true, Ready: true, Run: 2})
	services := s.services
	s = play(t, dir, m, "/bin/false")
	s.mu.Lock()
	s.services = services
	s.mu.Unlock()
	ready(2)
	newest(5, "ready")
	k.with(func() {
		if n := len(k.taken); n != 5 || k.taken[1].Status != "healing" || k.taken[2].Error == "" {
			t.Errorf("it took %+v", k.taken)
		}
	})
}

// A service that failed before its healer was declared is repaired.
func TestAFailureThatNobodySawIsRepaired(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/false")
	c, _ := project(t, "app")
	until(t, "it has looked at the services that there were", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.listed > 0
	})
	proctest.Must(t, s.in(t.Context(), func() {}))
	s.is("app", supervisor.State{Up: true, Phase: supervisor.Failed, Why: "it is not there"})
	s.declare(t, c, "/one/tend.yaml")
	until(t, "an episode", func() bool { return len(s.store.episodes()) == 1 })
}

// A worker with all that it runs takes at most what it is given.
func TestAWorkerHasBounds(t *testing.T) {
	m := testkeeper.New(t)
	s := play(t, t.TempDir(), m, "/bin/sh", "-c", "echo $GOMEMLIMIT; exec sleep 1000", "sh")
	c, _ := project(t, "app")
	s.is("app", supervisor.State{Up: true, Phase: supervisor.Failed, Why: "it is not there"})
	s.declare(t, c, "/one/tend.yaml")
	var in process.Info
	until(t, "a worker", func() bool {
		for _, one := range proctest.Value(m.List(t.Context(), process.Filter{Live: true}))(t) {
			in = one
		}
		return in.Spec.Labels[labelWorker] != ""
	})
	if in.Spec.Limits.MemoryMax != workerMemory || in.Spec.Limits.PidsMax != workerPids {
		t.Errorf("its limits are %+v", in.Spec.Limits)
	}
	proctest.Wait(t, proctest.Find(t, m, in.ID), process.Until{Match: goMemory})
}

// A journal that cannot be written for a while ends its episode later, and one whose
// directory is gone at once: neither keeps all others from beginning.
func TestAnEpisodeThatCannotBeWrittenEnds(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string) (mend func()){
		"the journal is no file for a while": func(t *testing.T, dir string) func() {
			journal := filepath.Join(dir, healer.JournalFile)
			proctest.Must(t, os.Rename(journal, journal+".aside"))
			proctest.Must(t, os.Mkdir(journal, 0o700))
			return func() {
				proctest.Must(t, os.Remove(journal))
				proctest.Must(t, os.Rename(journal+".aside", journal))
			}
		},
		"the journal has lost its beginning": func(t *testing.T, dir string) func() {
			proctest.Must(t, os.WriteFile(filepath.Join(dir, healer.JournalFile), []byte("?\n"), 0o600))
			return func() {}
		},
		"the directory is gone": func(t *testing.T, dir string) func() {
			proctest.Must(t, os.Rename(dir, dir+".aside")) // at once: a worker may be writing
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := testkeeper.New(t)
			s := play(t, t.TempDir(), m, "/bin/false")
			c, _ := project(t, "app")
			s.is("app", supervisor.State{Up: true})
			s.declare(t, c, "/one/tend.yaml")
			id := proctest.Value(s.Heal(t.Context(), "app", false))(t)
			mend := spoil(t, s.store.episode(id))
			until(t, "all workers have ended, or there can be none", func() bool {
				all, err := m.List(t.Context(), process.Filter{Labels: map[string]string{LabelEpisode: id}})
				_, gone := os.Stat(s.store.episode(id))
				return err == nil && len(all) == mostWorkers || gone != nil
			})
			mend()
			until(t, "another episode may begin", func() bool {
				_, err := s.Heal(t.Context(), "app", true)
				return err == nil
			})
			if st, err := os.Stat(filepath.Join(s.store.episode(id), healer.JournalFile)); err == nil && st.Size() > 64<<10 {
				t.Errorf("the journal has %d bytes", st.Size())
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
}

// What is seen beyond the signals that an episode keeps is not written for its worker.
func TestAFloodOfSignalsIsBounded(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/sleep", "60")
	c, _ := project(t, "app")
	s.is("app", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	id := proctest.Value(s.Heal(t.Context(), "app", false))(t)
	for range 10 * healer.MaxSignals {
		s.Saw("app", supervisor.Effect{Notice: supervisor.NoticeExit, Text: "again"})
	}
	inbox := func() int {
		data, _ := os.ReadFile(filepath.Join(s.store.episode(id), healer.InboxFile))
		return strings.Count(string(data), "\n")
	}
	until(t, "all are seen", func() bool {
		s.Healing.mu.Lock()
		defer s.Healing.mu.Unlock()
		return len(s.seen) == 0
	})
	until(t, "it can be cancelled", func() bool { return s.Cancel(t.Context(), id) == nil })
	for range 100 {
		proctest.Must(t, s.Cancel(t.Context(), id))
	}
	if n := inbox(); n > healer.MaxSignals+1 {
		t.Errorf("the inbox has %d lines", n)
	}
}

// An episode is over with its journal, also while its worker has not ended yet.
func TestAnEpisodeThatIsOverIsNotCancelled(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/sleep", "60")
	c, _ := project(t, "app")
	s.is("app", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	id := proctest.Value(s.Heal(t.Context(), "app", false))(t)
	j, _, err := healer.OpenJournal(filepath.Join(s.store.episode(id), healer.JournalFile))
	proctest.Must(t, err)
	for range 2*healer.MaxWorkers + 1 {
		proctest.Must(t, j.Append(healer.Entry{At: time.Now(), Kind: healer.Began}))
	}
	proctest.Must(t, j.Close())
	if err := s.Cancel(t.Context(), ""); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("what is over is cancelled: %v", err)
	}
	proctest.Must(t, s.Cancel(t.Context(), id))
	if _, err := os.Lstat(filepath.Join(s.store.episode(id), healer.InboxFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a worker that ends is told: %v", err)
	}
}

// A healer that cannot work keeps nothing of what it is told.
func TestNoticesAreNotKeptForNobody(t *testing.T) {
	dir := t.TempDir()
	proctest.Must(t, os.MkdirAll(filepath.Join(dir, "healing"), 0o700))
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "healing", stateFile), []byte("?"), 0o600))
	s := play(t, dir, nil)
	for range 1000 {
		s.Saw("app", supervisor.Effect{Notice: supervisor.NoticeExit})
	}
	if n := len(s.seen); n > 0 {
		t.Errorf("%d notices are kept", n)
	}
	if s.Status()["trouble"] == "" {
		t.Error("it says nothing of its trouble")
	}
}

// Whom the healer is for is rewritten by the next tend up, as the error says.
func TestADeclarationThatIsDamagedIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	proctest.Must(t, os.MkdirAll(filepath.Join(dir, "healing"), 0o700))
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "healing", declaredFile), []byte("?"), 0o600))
	s := play(t, dir, testkeeper.New(t), "/bin/false")
	if got := s.Status()["trouble"]; !strings.Contains(got, "until tend up is run") || !strings.Contains(got, declaredFile) {
		t.Errorf("it says %q", got)
	}
	c, _ := project(t, "app")
	s.is("app", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	if got := s.statusOf("app"); got != "running" || s.Status()["trouble"] != "" {
		t.Errorf("app is %q, and the status %v", got, s.Status())
	}
}

// An ID of an episode is no path.
func TestAnIDIsNoPath(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/sleep", "60")
	c, _ := project(t, "app")
	s.is("app", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	id := proctest.Value(s.Heal(t.Context(), "app", true))(t)
	for _, bad := range []string{"../episodes/" + id, id + "/../" + id, "..", "/" + id, "a\x00b"} {
		if err := s.Cancel(t.Context(), bad); !errors.Is(err, process.ErrNotFound) {
			t.Errorf("Cancel %q: %v", bad, err)
		}
		if _, err := s.Get(t.Context(), bad); !errors.Is(err, process.ErrNotFound) {
			t.Errorf("Get %q: %v", bad, err)
		}
	}
}

// An episode of which only its directory tells would be followed by nobody.
func TestAnEpisodeThatCannotBeNotedDoesNotBegin(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/sleep", "60")
	c, _ := project(t, "app")
	s.is("app", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	file := s.store.path(stateFile)
	proctest.Must(t, os.RemoveAll(file))
	proctest.Must(t, os.MkdirAll(filepath.Join(file, "in the way"), 0o700))
	if id, err := s.Heal(t.Context(), "app", false); err == nil || len(s.store.episodes()) > 0 {
		t.Errorf("%s has begun: %v, %v", id, err, s.store.episodes())
	}
	proctest.Must(t, os.RemoveAll(file))
	proctest.Value(s.Heal(t.Context(), "app", false))(t)
}

// An episode that a server was killed in beginning is none.
func TestAnEpisodeThatHasHalfBegunIsNone(t *testing.T) {
	dir := t.TempDir()
	h := store{filepath.Join(dir, "healing")}
	proctest.Must(t, os.MkdirAll(h.episode("20260101-000000-abcdef"), 0o700))
	proctest.Must(t, h.save(stateFile, state{Episode: "20260101-000000-abcdef", Newest: "20260101-000000-abcdef"}))
	s := play(t, dir, testkeeper.New(t), "/bin/sleep", "60")
	c, _ := project(t, "app")
	s.is("app", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	if _, err := s.Get(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "nothing was repaired yet") {
		t.Errorf("the newest episode: %v", err)
	}
	if _, id, _ := s.Of("app"); id != "" {
		t.Errorf("the service tells of %s", id)
	}
	proctest.Value(s.Heal(t.Context(), "app", false))(t)
}

// Whatever ends an episode, and whoever lives then: some worker removes what its checkpoints
// have left in the user's repository, and once. What was not taken back is kept.
func TestNoCheckpointOutlivesItsEpisode(t *testing.T) {
	point := func(s store, id string) string {
		file := filepath.Join(s.episode(id), healer.PointsDir, "1", "checkpoint.json")
		proctest.Must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		proctest.Must(t, os.WriteFile(file, []byte("{}"), 0o600))
		return file
	}
	gone := func(file string) func() bool {
		return func() bool { _, err := os.Stat(file); return errors.Is(err, fs.ErrNotExist) }
	}
	// A worker that comes to something only when the episode is over.
	program := []string{"sh", "-c", `[ $(wc -l < "$2/journal") -gt 6 ] && rm "$2/points/1/checkpoint.json"`, "sh"}
	t.Run("the server ends it", func(t *testing.T) {
		t.Parallel()
		s := play(t, t.TempDir(), testkeeper.New(t), program...)
		c, _ := project(t, "app")
		s.is("app", supervisor.State{Up: true})
		s.declare(t, c, "/one/tend.yaml")
		id := proctest.Value(s.Heal(t.Context(), "app", false))(t)
		until(t, "a worker has removed it", gone(point(s.store, id)))
	})
	t.Run("a server before has seen its end", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		st := store{filepath.Join(dir, "healing")}
		over := func(id string, more ...healer.Entry) string {
			o := &healer.Order{ID: id, Dir: st.episode(id), Service: "app", Rules: &config.Service{}, Healer: &config.Healer{Wall: config.Duration(time.Minute)}, At: time.Now()}
			proctest.Must(t, begin(o))
			j, _, err := healer.OpenJournal(o.Path(healer.JournalFile))
			proctest.Must(t, err)
			defer j.Close()
			for range 2*healer.MaxWorkers + 1 {
				more = append(more, healer.Entry{At: time.Now(), Kind: healer.Began})
			}
			for _, e := range more {
				proctest.Must(t, j.Append(e))
			}
			return point(st, id)
		}
		dirty := over("20260101-000001-dirty",
			healer.Entry{Kind: healer.Began}, healer.Entry{Kind: healer.Answered, Did: healer.Look, Seq: 1, OK: true, Remedies: []healer.Remedy{{Kind: healer.Book, Name: "part", Tree: true}}},
			healer.Entry{Kind: healer.Answered, Did: healer.Checkpoint, Seq: 2, OK: true})
		clean := over("20260101-000000-clean")
		play(t, dir, testkeeper.New(t), program...)
		until(t, "a worker has removed it", gone(clean)) // the dirty one comes before
		if gone(dirty)() {
			t.Error("what is needed to take it back by hand is gone")
		}
	})
}

// An old episode is removed with what it has left in the user's repository, by a worker that
// is told to, also if something of it was never taken back.
func TestAnOldEpisodeGoesWithWhatItKept(t *testing.T) {
	dir := t.TempDir()
	st := store{filepath.Join(dir, "healing")}
	old := func(id string) (point string) {
		o := &healer.Order{ID: id, Dir: st.episode(id), Service: "app", Rules: &config.Service{}, Healer: &config.Healer{Wall: config.Duration(time.Minute)}, At: time.Now()}
		proctest.Must(t, begin(o))
		j, _, err := healer.OpenJournal(o.Path(healer.JournalFile))
		proctest.Must(t, err)
		proctest.Must(t, j.Append(healer.Entry{Kind: healer.Began}))
		proctest.Must(t, j.Append(healer.Entry{Kind: healer.Answered, Did: healer.Look, Seq: 1, OK: true, Remedies: []healer.Remedy{{Kind: healer.Book, Name: "part", Tree: true}}}))
		proctest.Must(t, j.Append(healer.Entry{Kind: healer.Answered, Did: healer.Checkpoint, Seq: 2, OK: true}))
		for range 2*healer.MaxWorkers + 1 {
			proctest.Must(t, j.Append(healer.Entry{At: time.Now(), Kind: healer.Began}))
		}
		proctest.Must(t, j.Close())
		if s := healer.Fold(proctest.Value(healer.ReadJournal(o.Path(healer.JournalFile)))(t)); !s.Done() || !s.Dirty {
			t.Fatalf("it is %+v", s)
		}
		point = filepath.Join(st.episode(id), healer.PointsDir, "1", "checkpoint.json")
		proctest.Must(t, os.MkdirAll(filepath.Dir(point), 0o700))
		proctest.Must(t, os.WriteFile(point, []byte("{}"), 0o600))
		return point
	}
	const first, stuck, newer = "20250101-000000-first", "20250101-000001-stuck", "20250101-000002-newer"
	for _, id := range []string{first, stuck, newer} {
		old(id)
	}
	for n := range keepEpisodes - 2 { // with the one that begins, newer is the oldest that is kept
		proctest.Must(t, os.MkdirAll(st.episode(fmt.Sprintf("20260101-%06d-aaaaaa", n)), 0o700))
	}
	// One that is told to forget does, but for one that cannot.
	program := []string{"sh", "-c", `case $2 in *-stuck) exit 1;; esac; [ -e "$2/forget" ] && echo "${2##*/}" >> ` + dir + `/forgotten && rm "$2/points/1/checkpoint.json"`, "sh"}
	s := play(t, dir, testkeeper.New(t), program...)
	c, _ := project(t, "app")
	s.is("app", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	proctest.Value(s.Heal(t.Context(), "app", false))(t)
	there := func(id string) bool { _, err := os.Stat(st.episode(id)); return err == nil }
	until(t, "the oldest has gone", func() bool { return !there(first) })
	if got := string(proctest.Value(os.ReadFile(filepath.Join(dir, "forgotten")))(t)); got != first+"\n" {
		t.Errorf("these were forgotten: %q", got)
	}
	for _, id := range []string{stuck, newer} {
		if !hasPoints(st.episode(id)) {
			t.Errorf("what %s needs is gone", id)
		}
	}
}
