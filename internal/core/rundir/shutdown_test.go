//go:build linux

package rundir_test

import (
	"os"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/support/scene"
)

func TestATimeIsInTheNewestShutdown(t *testing.T) {
	d := scene.Value(rundir.Open(t.TempDir()))(t)
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
	scene.Must(t, d.EndShutdown(at)) // of none
	ask("without one", map[time.Duration]bool{0: false})
	scene.Must(t, d.BeginShutdown(at))
	ask("while it lasts", map[time.Duration]bool{-time.Second: false, 0: true, time.Hour: true})
	scene.Must(t, d.EndShutdown(at.Add(time.Second)))
	scene.Must(t, d.EndShutdown(at.Add(time.Minute))) // another anchor
	ask("afterwards", map[time.Duration]bool{-time.Second: false, 0: true, time.Second: true, 2 * time.Second: false})
	scene.Must(t, os.WriteFile(d.Path(rundir.Shutdown), []byte("nonsense"), 0o600))
	ask("of a damaged file", map[time.Duration]bool{0: false})
	scene.Must(t, d.BeginShutdown(at))
	ask("after that", map[time.Duration]bool{0: true})
}
