package healing

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// ended writes an episode that is over down, as its worker leaves it.
func (s *stage) ended(t *testing.T, n int, c *config.Config, service, file string, how ...healer.Entry) string {
	t.Helper()
	at := time.Now().Add(time.Duration(n-100) * time.Second)
	o := &healer.Order{ID: newID(at), Rules: c.Services[service], Healer: c.Healer, Service: service, File: file, At: at, Signal: healer.Signal{Kind: "exit"}}
	o.Dir = s.store.episode(o.ID)
	proctest.Must(t, begin(o))
	j, _, err := healer.OpenJournal(o.Path(healer.JournalFile))
	proctest.Must(t, err)
	defer j.Close()
	for _, e := range append([]healer.Entry{{Kind: healer.Began}}, how...) {
		e.At = at
		proctest.Must(t, j.Append(e))
	}
	if m := proctest.Value(s.Get(t.Context(), o.ID))(t); m.Episode.GetEnded() == nil {
		t.Fatalf("it is not over: %v", m.Episode)
	}
	return o.ID
}

// What cannot be taken back says why, and begins nothing; what nobody can do is refused in
// the end.
func TestWhatIsTakenBackIsARepair(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/false")
	c, _ := project(t, "web")
	s.is("web", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	found := func(kind string, tree bool) healer.Entry {
		return healer.Entry{Kind: healer.Answered, Did: healer.Look, Seq: 1, OK: true, Remedies: []healer.Remedy{{Kind: kind, Tree: tree}}}
	}
	did := func(a healer.Action, seq int64, commit string) healer.Entry {
		return healer.Entry{Kind: healer.Answered, Did: a, Seq: seq, OK: true, Commit: commit}
	}
	restarted := []healer.Entry{found(healer.Restart, false), did(healer.Act, 2, ""), did(healer.Verify, 3, "")}
	repaired := func(commit string) []healer.Entry {
		return []healer.Entry{found(healer.Book, true), did(healer.Checkpoint, 2, ""), did(healer.Act, 3, ""), did(healer.Verify, 4, ""), did(healer.Review, 5, ""), did(healer.Commit, 6, commit)}
	}
	commit := strings.Repeat("ab", 20)
	kept := s.ended(t, 4, c, "web", "/one/tend.yaml", repaired("")...)
	proctest.Must(t, os.WriteFile(s.store.episode(kept)+"/"+healer.UndoFile, []byte("{}"), 0o600))
	for name, one := range map[string]struct {
		id   string
		kind error
		text string
		can  bool
	}{
		"none is named":             {"", nil, "say which repair", false},
		"there is none":             {"nope", process.ErrNotFound, "there is no episode", false},
		"it is no ID":               {"../x", process.ErrNotFound, "there is no episode", false},
		"it was only restarted":     {s.ended(t, 1, c, "web", "/one/tend.yaml", restarted...), process.ErrUnsupported, "has kept nothing", false},
		"it is broken":              {s.ended(t, 2, c, "web", "/one/tend.yaml", healer.Entry{Kind: healer.Cancelled}), process.ErrUnsupported, "nothing to go back to", false},
		"it is of another file":     {s.ended(t, 3, c, "web", "/two/tend.yaml", repaired(commit)...), process.ErrUnsupported, "git revert abababababab", true},
		"its worker ends each time": {kept, process.ErrRunning, "workers ended before it did", true},
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := s.Get(t.Context(), one.id); one.id != "" && err == nil && m.Episode.GetCanRollBack() != one.can {
				t.Errorf("it says %v", m.Episode)
			}
			_, err := s.RollBack(t.Context(), one.id)
			if err == nil || !strings.Contains(err.Error(), one.text) || one.kind != nil && !errors.Is(err, one.kind) {
				t.Errorf("it is %v; want %q", err, one.text)
			}
		})
	}
	if _, err := s.Get(t.Context(), kept); err != nil || s.store.takenBack(kept) != "" {
		t.Errorf("it counts as taken back: %v", err)
	}
	if got := s.statusOf("web"); got != "running" {
		t.Errorf("the service is %s, though nothing of it was repaired", got)
	}
}
