package healing

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// Episodes that begin within one second are listed in the order in which they began.
func TestEpisodesAreListedTheNewestFirst(t *testing.T) {
	s := store{t.TempDir()}
	now := time.Date(2026, 11, 23, 4, 54, 41, 0, time.UTC)
	var want []string
	for n := range 20 {
		id := newID(now.Add(time.Duration(n) * 10 * time.Millisecond))
		if !validID(id) {
			t.Fatalf("%q is no ID", id)
		}
		proctest.Must(t, os.MkdirAll(s.episode(id), 0o700))
		want = slices.Insert(want, 0, id)
	}
	if got := s.episodes(); !slices.Equal(got, want) {
		t.Errorf("they are %q, not %q", got, want)
	}
}
