//go:build linux

package rundir_test

import (
	"os"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestATimeIsInTheNewestShutdown(t *testing.T) {
	d := proctest.Value(rundir.Open(t.TempDir()))(t)
	defer d.Close()
	at := time.UnixMilli(1_000_000)
	ask := func(what string, want map[time.Duration]bool) {
		t.Helper()
		for after, in := range want {
			if got := d.InShutdown(at.Add(after)); got != in {
				t.Errorf("%s: %v after the beginning it is %v", what, after, got)
			}
		}
	}
	proctest.Must(t, d.EndShutdown(at)) // of none
	ask("without one", map[time.Duration]bool{0: false})
	proctest.Must(t, d.BeginShutdown(at))
	ask("while it lasts", map[time.Duration]bool{-time.Second: false, 0: true, time.Hour: true})
	proctest.Must(t, d.EndShutdown(at.Add(time.Second)))
	proctest.Must(t, d.EndShutdown(at.Add(time.Minute))) // another anchor
	ask("afterwards", map[time.Duration]bool{-time.Second: false, 0: true, time.Second: true, 2 * time.Second: false})
	proctest.Must(t, os.WriteFile(d.Path(rundir.Shutdown), []byte("nonsense"), 0o600))
	ask("of a damaged file", map[time.Duration]bool{0: false})
	proctest.Must(t, d.BeginShutdown(at))
	ask("after that", map[time.Duration]bool{0: true})
}
