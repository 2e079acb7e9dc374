package chat

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/support/proctest"
)

// What is in testdata/v1 was written by the server of November 2026, before the first
// release. It is never written anew: a format that changes has another directory beside it.
func TestAJournalIsReadByEachVersion(t *testing.T) {
	const path = "testdata/v1/journal"
	j := Open(path)
	entries := proctest.Value(j.Read())(t)
	lines := bytes.Split(bytes.TrimSpace(proctest.Value(os.ReadFile(path))(t)), []byte("\n"))
	if len(entries) != len(lines) {
		t.Fatalf("of %d lines %d are read", len(lines), len(entries))
	}
	for i, line := range lines {
		one := filepath.Join(t.TempDir(), "line")
		proctest.Must(t, os.WriteFile(one, line, 0o600))
		proctest.Record(t, one, &entries[i])
	}
	s := j.State()
	if s.Phase != Working || s.LastID != "a2" || s.LastSaid != 16 || s.Steps != 0 || s.Total.Output != 20 || s.Cost != 0.25 || s.Made != 3 || len(s.Pending) != 0 || len(s.Messages) != 3 {
		t.Fatalf("the state is %+v", s)
	}
	if last := s.Messages[2].Blocks; len(last) != 4 || last[0].Text != "host" || !last[1].Error || last[2].Text != "Go on." || last[3].Text != "and now?" {
		t.Errorf("the model is told %+v", last)
	}
}

// After each line of a journal, and after a part of it, the conversation is one that a model
// takes: each call has its result in the very next message, once the turn is over.
func TestAJournalThatIsCutAnywhereIsAConversation(t *testing.T) {
	data := proctest.Value(os.ReadFile("testdata/v1/journal"))(t)
	for n := range len(data) {
		if n%41 != 0 && data[max(n-1, 0)] != '\n' {
			continue
		}
		path := filepath.Join(t.TempDir(), "journal")
		proctest.Must(t, os.WriteFile(path, data[:n], 0o600))
		j := Open(path)
		proctest.Must(t, j.Append(t.Context(), func(*State) ([]Entry, error) { return []Entry{{Kind: End}, {Kind: Said, Text: "go on"}}, nil }))
		s := j.State()
		if again := Open(path); len(proctest.Value(again.Read())(t)) == 0 || again.State().Entries != s.Entries || s.Entries != int64(bytes.Count(data[:n], []byte("\n")))+2 {
			t.Fatalf("cut at %d there are %d entries", n, s.Entries)
		}
		open := map[string]bool{}
		for i, m := range s.Messages {
			if (m.Role == agent.User) != (i%2 == 0) {
				t.Fatalf("cut at %d: two messages of one side", n)
			}
			for _, b := range m.Blocks {
				if b.Kind == agent.ResultBlock && !open[b.ID] {
					t.Fatalf("cut at %d: a result of no call", n)
				}
				delete(open, b.ID)
			}
			if m.Role == agent.User && len(open) > 0 {
				t.Fatalf("cut at %d: calls without a result: %v", n, open)
			}
			for _, b := range m.Blocks {
				if b.Kind == agent.CallBlock {
					open[b.ID] = true
				}
			}
		}
	}
}

// Server and worker write by turns: what each decides by what the other has written is so when
// it is written.
func TestManyWriteOneJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	var all sync.WaitGroup
	busy := errors.New("busy")
	taken := make(chan int64, 100)
	for range 4 {
		all.Go(func() {
			j := Open(path)
			for range 10 {
				err := j.Append(t.Context(), func(s *State) ([]Entry, error) {
					if s.Phase != Idle {
						return nil, busy
					}
					return []Entry{{Kind: Said, Text: "x"}}, nil
				})
				if err == nil {
					taken <- j.State().Entries
				} else if !errors.Is(err, busy) {
					t.Error(err)
				}
				proctest.Must(t, j.Append(t.Context(), func(*State) ([]Entry, error) { return []Entry{{Kind: Note, Text: "y"}}, nil }))
			}
		})
	}
	all.Wait()
	close(taken)
	if n := len(taken); n != 1 {
		t.Errorf("of messages at once %d were taken", n)
	}
	if got := len(proctest.Value(Open(path).Read())(t)); got != 41 {
		t.Errorf("there are %d entries", got)
	}
}

// A full journal takes nothing more but the end of the turn.
func TestAFullJournalEndsItsTurn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := Open(path)
	put := func(e Entry) error {
		return j.Append(t.Context(), func(*State) ([]Entry, error) { return []Entry{e}, nil })
	}
	proctest.Must(t, put(Entry{Kind: Said, Text: "x"}))
	line := []byte(`{"kind":"note","text":"` + strings.Repeat("x", 1<<20) + "\"}\n")
	f := proctest.Value(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0))(t)
	for range MaxJournal / len(line) {
		proctest.Value(f.Write(line))(t)
	}
	proctest.Must(t, f.Close())
	err := put(Entry{Kind: Result, Text: strings.Repeat("y", maxText)})
	for n := 0; err == nil && n < 20; n++ {
		err = put(Entry{Kind: Result, Text: strings.Repeat("y", maxText)})
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("it takes: %v", err)
	}
	proctest.Must(t, put(Entry{Kind: End, Text: err.Error(), Error: true}))
	if j.State().Phase != Idle {
		t.Error("the turn has no end")
	}
}
