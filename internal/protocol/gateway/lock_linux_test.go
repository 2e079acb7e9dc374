package gateway

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/support/proctest"
)

// opened is how many descriptors of this process are of a file.
func opened(t *testing.T, path string) (n int) {
	t.Helper()
	for _, fd := range proctest.Value(os.ReadDir("/proc/self/fd"))(t) {
		if link, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && link == path {
			n++
		}
	}
	return n
}

// Another server that takes its time to write holds up whoever writes, and no request.
func TestRequestsGoOnWhileAnotherServerWrites(t *testing.T) {
	g := open(t, t.TempDir(), "")
	key := g.key("a", Rules{})
	path := filepath.Join(g.dir, "lock")
	unlock := proctest.Value(atomicfile.Lock(t.Context(), path))(t)
	done := make(chan error, 2)
	go func() {
		_, _, err := g.CreateKey("b", Rules{})
		done <- err
	}()
	go func() { done <- g.reports.set("none", Report{Status: creating}, g.keys.list) }()
	proctest.Eventually(t, "both wait", func() bool { return opened(t, path) == 3 })
	if status, _, body := g.ask("GET", "/api/sandbox/status", key, ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	unlock()
	for range 2 {
		proctest.Must(t, <-done) // they had not given up
	}
}
