package files

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestASandboxHasAShareOfTheWatches: what it closes or removes is there again, and nothing that it
// does uses up another one's.
func TestASandboxHasAShareOfTheWatches(t *testing.T) {
	was := []int{instances.most, watches.most}
	instances.most, watches.most = 24, 48 // a sandbox has 3 and 6
	defer func() { instances.most, watches.most = was[0], was[1] }()
	one, other := newRoom(t), newRoom(t)
	for _, r := range []room{one, other} {
		r.put("home/user/w/", 1000, 0o755, "")
		for i := range 6 {
			r.put(fmt.Sprintf("home/user/w/%d/", i), 1000, 0o755, "")
		}
	}
	f := one.as("user")
	for range 3 {
		var open []Watcher
		for range 3 {
			open = append(open, proctest.Value(f.Watch("/home/user/w", WatchOptions{}))(t))
		}
		if _, err := f.Watch("/home/user/w", WatchOptions{}); !errors.Is(err, ErrWatchLimit) {
			t.Fatalf("a fourth: %v", err)
		}
		proctest.Must(t, proctest.Value(other.as("user").Watch("/home/user/w", WatchOptions{}))(t).Close())
		for _, w := range open {
			proctest.Must(t, errors.Join(w.Close(), w.Close()))
		}
		if _, err := f.Watch("/home/user/w", WatchOptions{Recursive: true}); !errors.Is(err, ErrWatchLimit) {
			t.Fatalf("seven directories: %v", err)
		}
		proctest.Must(t, proctest.Value(f.Watch("/home/user/w/1", WatchOptions{Recursive: true}))(t).Close())
	}
	if instances.all != 0 || watches.all != 0 || one.root.watches.used != 0 {
		t.Errorf("of all that was closed %d and %d are left", instances.all, watches.all)
	}
}
