package sandboxrecord

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestTheTextsOfAllSandboxesAreBounded: one with little of them has a place all the same, and what
// is removed or made smaller makes room.
func TestTheTextsOfAllSandboxesAreBounded(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	rec := func(i, mib int) *Record {
		r := &Record{ID: driver.ID(fmt.Sprint("id", i)), Name: fmt.Sprint("name", i), Metadata: map[string]string{}}
		for k := range mib {
			r.Metadata[fmt.Sprint(k)] = text[:len(text)-len(fmt.Sprint(k))]
		}
		return r
	}
	var r Registry[int]
	proctest.Must(t, r.Restore(0, rec(0, 200))) // of a former time
	proctest.Must(t, r.Add(1, rec(1, 56)))
	for _, err := range []error{r.Add(2, rec(2, 1)), r.Room(rec(1, 57))} {
		if !errors.Is(err, driver.ErrLimit) {
			t.Errorf("more than the limit: %v", err)
		}
	}
	if err := r.Add(2, &Record{ID: "id2", Name: "name1", Metadata: rec(2, 1).Metadata}); !errors.Is(err, driver.ErrExists) {
		t.Errorf("a name that there is: %v", err)
	}
	small := rec(2, 0)
	small.Env = map[string]string{"A": text[:smallTexts-1]}
	proctest.Must(t, errors.Join(r.Add(2, small), r.Room(rec(1, 56)), r.Room(rec(0, 200))))
	r.Changed(rec(1, 55))
	proctest.Must(t, r.Add(3, rec(3, 1)))
	if err := r.Add(4, rec(4, 1)); !errors.Is(err, driver.ErrLimit) {
		t.Errorf("once more: %v", err)
	}
	for _, id := range []driver.ID{"id0", "id1", "id2", "id3"} {
		r.Remove(id)
	}
	r.Changed(rec(3, 100)) // it is gone
	if r.all != 0 || len(r.texts) != 0 {
		t.Errorf("%d bytes are counted of none", r.all)
	}
}
