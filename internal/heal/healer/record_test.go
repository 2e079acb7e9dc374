package healer_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/support/proctest"
)

// What is in testdata/v1 was written by the server of November 2026, before the first
// release. It is never written anew: a format that changes has another directory beside it.

func TestAnOrderIsReadByEachVersion(t *testing.T) {
	o := new(healer.Order)
	proctest.Record(t, "testdata/v1/order.json", o)
	if o.Rules == nil || o.Healer == nil || o.ID == "" || o.Signal.Kind == "" || !o.DryRun {
		t.Errorf("it is %+v", o)
	}
}

func TestAJournalIsReadByEachVersion(t *testing.T) {
	const path = "testdata/v1/journal"
	entries := proctest.Value(healer.ReadJournal(path))(t)
	lines := bytes.Split(bytes.TrimSpace(proctest.Value(os.ReadFile(path))(t)), []byte("\n"))
	if len(entries) != len(lines) {
		t.Fatalf("of %d lines %d are read", len(lines), len(entries))
	}
	for i, line := range lines {
		one := filepath.Join(t.TempDir(), "line")
		proctest.Must(t, os.WriteFile(one, line, 0o600))
		proctest.Record(t, one, &entries[i])
	}
	s := healer.Fold(entries)
	at := func(second int) time.Time { return time.Date(2026, 11, 22, 12, 0, second, 0, time.UTC) }
	if !s.Done() || s.Status != healer.Ready || s.Committed != "0123456789abcdef" || len(s.Left) != 1 || s.Proposal != "set PORT" || !s.Opened.Equal(at(0)) || !s.Ended.Equal(at(14)) || len(s.Signals) != 2 || s.Workers != 1 {
		t.Errorf("the episode is %+v", s)
	}
	if len(s.Tries) != 2 || s.Tries[0].Failed != "npm ci: exit 1" || s.Tries[1].Failed != "" || s.Tries[1].Tokens != 1200 || s.Tries[1].Steps != 4 || s.Tries[1].Cost != 0.25 || len(s.Tries[1].Paths) != 1 {
		t.Errorf("the tries are %+v", s.Tries)
	}
}

// A worker of an earlier version goes on with the journal of a later one: what it does not
// know changes nothing, and no line after it is lost.
func TestAJournalOfALaterVersionIsKept(t *testing.T) {
	data := proctest.Value(os.ReadFile("testdata/v1/journal"))(t)
	lines := bytes.SplitAfter(data, []byte("\n"))
	var later []byte
	for _, line := range lines {
		later = append(later, line...)
		later = append(later, `{"at":"2026-11-22T12:00:10Z","kind":"paused","until":{"a":1}}`+"\n"...)
		later = append(later, `{"at":"2026-11-22T12:00:10Z","kind":"answered","did":"rehearse","seq":7,"ok":true}`+"\n"...)
	}
	path := filepath.Join(t.TempDir(), healer.JournalFile)
	proctest.Must(t, os.WriteFile(path, later, 0o600))
	j, entries, err := healer.OpenJournal(path)
	proctest.Must(t, err)
	proctest.Must(t, j.Close())
	if !bytes.Equal(proctest.Value(os.ReadFile(path))(t), later) {
		t.Error("lines that are not known were cut off")
	}
	was := proctest.Value(json.Marshal(healer.Fold(proctest.Value(healer.ReadJournal("testdata/v1/journal"))(t))))(t)
	if got := proctest.Value(json.Marshal(healer.Fold(entries)))(t); !bytes.Equal(got, was) {
		t.Errorf("the episode is\n%s\nand was\n%s", got, was)
	}
}
