package layer

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// A copy tells how many bytes there are of it, and after a moment of how many; both are 0 when it is over.
func TestHowFarACopyIs(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(from, "a"), make([]byte, 3<<20), 0o644))
	proctest.Must(t, os.Link(filepath.Join(from, "a"), filepath.Join(from, "b")))
	proctest.Must(t, os.WriteFile(filepath.Join(from, "c"), make([]byte, 100), 0o644))
	var info Info
	var p Progress
	proctest.Must(t, copyDirs(t.Context(), []string{from}, to, &Meta{Progress: &p, Limits: Limits{Entries: 9}}, false, &info))
	if n := p.Copied.Load(); n < 3<<20 || n > info.Bytes {
		t.Errorf("copied %d of %d", n, info.Bytes)
	}
	synctest.Test(t, func(t *testing.T) {
		for _, quick := range []bool{true, false} {
			proctest.Must(t, p.of(t.Context(), []string{from, from}, func() error {
				for i := 0; !quick && p.Total.Load() == 0 && i < 1000; i++ {
					time.Sleep(countAfter)
				}
				if all := p.Total.Load(); quick != (all == 0) || !quick && all != 2*info.Bytes {
					t.Errorf("quick: %v; it is said that there are %d bytes, and there are %d", quick, all, 2*info.Bytes)
				}
				return nil
			}))
			if p.Copied.Load() != 0 || p.Total.Load() != 0 {
				t.Error("it is not over")
			}
		}
	})
}
