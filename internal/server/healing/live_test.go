package healing

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
)

// An episode that is watched is told as it continues: each step, what a model is writing and
// has written, what each try has changed. Whoever comes later gets the rest alone.
func TestAnEpisodeIsWatched(t *testing.T) {
	h := &Healing{store: store{t.TempDir()}}
	id := newID(time.Now())
	dir := h.store.episode(id)
	proctest.Must(t, os.MkdirAll(dir, 0o700))
	write := func(name, text string) {
		t.Helper()
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	order := proctest.Value(json.Marshal(&healer.Order{ID: id, Dir: dir, Service: "web", Rules: &config.Service{}, Healer: &config.Healer{}, At: time.Now()}))(t)
	write(healer.OrderFile, string(order))
	journal, _, err := healer.OpenJournal(filepath.Join(dir, healer.JournalFile))
	proctest.Must(t, err)
	defer journal.Close()
	var s healer.State
	put := func(e healer.Entry) {
		t.Helper()
		e.At = time.Now()
		if e.Kind == healer.Answered {
			e.Did, e.Seq = s.Doing, s.Seq
		}
		proctest.Must(t, journal.Append(e))
		s, _ = healer.Step(s, e)
	}
	put(healer.Entry{Kind: healer.Opened, ID: id, Service: "web", Signal: &healer.Signal{Kind: "exit", Text: "it ended"}})
	put(healer.Entry{Kind: healer.Began, Worker: 1})
	put(healer.Entry{Kind: healer.Answered, OK: true, Remedies: []healer.Remedy{{Kind: healer.Model, Tree: true}, {Kind: healer.Model, Tree: true}}})
	put(healer.Entry{Kind: healer.Answered, OK: true}) // a checkpoint
	write(healer.WordsFile, `{"text":"I look at"}`)

	got := make(chan *tendv1.WatchEpisodeResponse)
	done := make(chan error, 1)
	go func() {
		done <- h.Watch(t.Context(), "", 0, func(m *tendv1.WatchEpisodeResponse) error {
			if m != nil {
				got <- m
			}
			return nil
		})
	}()
	next := func() *tendv1.WatchEpisodeResponse {
		t.Helper()
		select {
		case m := <-got:
			return m
		case err := <-done:
			t.Fatalf("it is not watched any more: %v", err)
			return nil
		}
	}
	m := next()
	var did []string
	for _, one := range m.GetSteps() {
		did = append(did, one.GetKind()+" "+one.GetDid())
	}
	if want := []string{"opened ", "began ", "answered look", "answered checkpoint"}; !slices.Equal(did, want) || m.GetEpisode().GetDoing() != "act" || m.GetWords().GetText() != "I look at" {
		t.Fatalf("at first there is %v", m)
	}
	write(healer.RunningFile, `{"command":"npm ci","begun":"2026-11-30T08:00:00Z","line":"added 3 packages"}`)
	if m = next(); m.GetEpisode().GetRunning().GetCommand() != "npm ci" || m.GetEpisode().GetRunning().GetLine() != "added 3 packages" {
		t.Fatalf("while a command runs there is %v", m)
	}
	proctest.Must(t, os.Remove(filepath.Join(dir, healer.RunningFile)))
	if m = next(); m.GetEpisode() == nil || m.GetEpisode().GetRunning() != nil {
		t.Fatalf("once it has ended there is %v", m)
	}
	write(healer.TranscriptFile, "{\"kind\":\"reply\"}\n{\"ki")
	if m = next(); string(m.GetTranscript()) != "{\"kind\":\"reply\"}\n" || m.GetTranscriptTo() != 17 || m.GetEpisode() != nil {
		t.Fatalf("of a transcript whose last line is half there is %v", m)
	}
	proctest.Must(t, os.Remove(filepath.Join(dir, healer.WordsFile)))
	if m = next(); m.GetWords() == nil || m.GetWords().GetText() != "" {
		t.Fatalf("once the reply is whole there is %v", m)
	}
	write(healer.TakenBackFile(1), "-a\n+b\n")
	put(healer.Entry{Kind: healer.Answered, Text: "a tool failed"})       // the act
	for m = next(); m.GetEpisode().GetDoing() != "rollback"; m = next() { // each entry may come alone
	}
	put(healer.Entry{Kind: healer.Answered, OK: true}) // the rollback
	for m = next(); len(m.GetDiffs()) == 0; m = next() {
	}
	if d := m.GetDiffs()[0]; len(m.GetDiffs()) != 1 || d.GetTry() != 1 || !d.GetUndone() || string(d.GetText()) != "-a\n+b\n" {
		t.Fatalf("of what was taken back there is %v", m)
	}
	put(healer.Entry{Kind: healer.Cancelled})
	for s.Doing != healer.Over {
		put(healer.Entry{Kind: healer.Answered, OK: true})
	}
	for {
		select {
		case m = <-got:
			continue
		case err := <-done:
			if err != nil || m.GetEpisode().GetEnded() == nil {
				t.Fatalf("at the end: %v, %v", m, err)
			}
		}
		break
	}
	// One who has the first line already gets what is after it.
	write(healer.TranscriptFile, "{\"kind\":\"reply\"}\n{\"kind\":\"end\"}\n")
	var late []*tendv1.WatchEpisodeResponse
	proctest.Must(t, h.Watch(t.Context(), id, 17, func(m *tendv1.WatchEpisodeResponse) error { late = append(late, m); return nil }))
	if len(late) == 0 || string(late[0].GetTranscript()) != "{\"kind\":\"end\"}\n" || late[0].GetTranscriptAt() != 17 {
		t.Errorf("later there is %v", late)
	}
}
