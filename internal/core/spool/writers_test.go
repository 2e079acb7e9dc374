package spool

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/process"
)

func TestWritersAreReadAsTheyWereWritten(t *testing.T) {
	b := AppendSpec(nil, time.Unix(1, 0), &process.Spec{ID: "p", Argv: []string{"true"}})
	want := Writers{Taken: map[string]int64{"a": 1 << 40, "a writer with a name of 32 bytes": 0}, Forgot: true}
	b = AppendWriters(b, time.Unix(2, 0), want)
	j, err := parseJournal(b)
	if err != nil || j.Torn {
		t.Fatal(err, j.Torn)
	}
	if d := cmp.Diff(want, j.Writers); d != "" {
		t.Error(d)
	}
	// A record that is cut short inside is as good as none.
	for _, body := range []string{"", "\x00\x05name", "\x00\xff"} {
		if _, ok := parseWriters([]byte(body)); ok {
			t.Errorf("%q was taken for writers", body)
		}
	}
}
