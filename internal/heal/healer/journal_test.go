package healer_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/support/proctest"
)

// A journal that was cut at any byte is the whole entries before it, and goes on there.
func TestAJournalThatWasCutGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, err := healer.OpenJournal(path)
	proctest.Must(t, err)
	const n = 5
	var ends []int64
	for i := range n {
		proctest.Must(t, j.Append(healer.Entry{At: t0, Kind: healer.Note, Text: fmt.Sprint("line ", i, "\nof two")}))
		ends = append(ends, proctest.Value(os.Stat(path))(t).Size())
	}
	proctest.Must(t, j.Close())
	whole := proctest.Value(os.ReadFile(path))(t)
	for cut := 0; cut <= len(whole); cut += 1 + cut/100 {
		proctest.Must(t, os.WriteFile(path, whole[:cut], 0o600))
		want := 0
		for _, end := range ends {
			if int64(cut) >= end {
				want++
			}
		}
		if got := proctest.Value(healer.ReadJournal(path))(t); len(got) != want {
			t.Fatalf("cut at %d it has %d entries, and %d are whole", cut, len(got), want)
		}
		j, got, err := healer.OpenJournal(path)
		proctest.Must(t, err)
		if len(got) != want {
			t.Fatalf("cut at %d it opens with %d entries", cut, len(got))
		}
		proctest.Must(t, j.Append(healer.Entry{At: t0, Kind: healer.Note, Text: "after"}))
		proctest.Must(t, j.Close())
		if got := proctest.Value(healer.ReadJournal(path))(t); len(got) != want+1 || got[want].Text != "after" {
			t.Fatalf("cut at %d it goes on as %+v", cut, got)
		}
	}
}

func TestAJournalIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, err := healer.OpenJournal(path)
	proctest.Must(t, err)
	t.Cleanup(func() { j.Close() })
	for range 10_000 {
		e := healer.Entry{At: t0, Kind: healer.Note, Text: strings.Repeat("x\xff", 1<<20)}
		for range 1000 {
			e.Paths = append(e.Paths, e.Text[:8000])
		}
		if err = j.Append(e); err != nil {
			break
		}
	}
	if !errors.Is(err, healer.ErrFull) || proctest.Value(os.Stat(path))(t).Size() > healer.MaxJournal {
		t.Errorf("got %v", err)
	}
	if e := proctest.Value(healer.ReadJournal(path))(t)[0]; len(e.Text) > healer.MaxText {
		t.Errorf("a text has %d bytes", len(e.Text))
	}
}

func FuzzReadJournal(f *testing.F) {
	f.Add([]byte(`{"at":"2026-11-22T12:00:00Z","kind":"opened","id":"e"}` + "\n" + `{"kind":"began"}` + "\n" + `{"kind":"answered","did":"look","seq":1,"remedies":[{"kind":"model","tree":true}]}` + "\n"))
	f.Add([]byte("{\"kind\":\"later\"}\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "journal")
		proctest.Must(t, os.WriteFile(path, data, 0o600))
		j, entries, err := healer.OpenJournal(path)
		if err != nil {
			return
		}
		defer j.Close()
		healer.Fold(entries)
		if again := proctest.Value(healer.ReadJournal(path))(t); len(again) != len(entries) {
			t.Fatalf("%d entries, and then %d", len(entries), len(again))
		}
	})
}
