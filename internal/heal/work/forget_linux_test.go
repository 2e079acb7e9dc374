package work

import (
	"os"
	"testing"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/support/proctest"
)

// What an episode keeps to take something back by hand stays until the episode is to be
// forgotten. Then nothing of it is left in the user's repository.
func TestARefGoesWithItsEpisode(t *testing.T) {
	g := newGround(t, 0)
	g.w.state = healer.State{Dirty: true, Tries: make([]healer.Try, 1)}
	ref := func() string { return g.git("for-each-ref", "refs/tend") }
	if ref() == "" {
		t.Fatal("the checkpoint has no ref")
	}
	g.w.finish()
	if ref() == "" {
		t.Error("what is needed to take it back by hand is gone")
	}
	proctest.Must(t, os.WriteFile(g.w.order.Path(healer.ForgetFile), nil, 0o600))
	g.w.finish()
	if got := ref(); got != "" {
		t.Errorf("it has left %s", got)
	}
}
