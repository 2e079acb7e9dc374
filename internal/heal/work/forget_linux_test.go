package work

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/support/proctest"
)

// What an episode keeps to take something back by hand stays until the episode is to be
// forgotten. Then nothing of it is left.
func TestACheckpointGoesWithItsEpisode(t *testing.T) {
	g := newGround(t, 0)
	g.w.state = healer.State{Dirty: true, Tries: make([]healer.Try, 1)}
	there := func() bool {
		_, err := os.Lstat(filepath.Join(g.w.order.Path(healer.PointsDir), "1", checkpoint.StoreDir))
		return err == nil
	}
	if !there() {
		t.Fatal("there is no checkpoint")
	}
	g.w.finish()
	if !there() {
		t.Error("what is needed to take it back by hand is gone")
	}
	proctest.Must(t, os.WriteFile(g.w.order.Path(healer.ForgetFile), nil, 0o600))
	g.w.finish()
	if there() {
		t.Error("it is left")
	}
}
