package work

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/support/proctest"
)

// A model that does not answer is waited for with longer and longer pauses, which the
// journal says, for half of the time that the episode has.
func TestTheWaitForAModelIsBounded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j, _, err := healer.OpenJournal(filepath.Join(dir, healer.JournalFile))
		proctest.Must(t, err)
		defer j.Close()
		w := &worker{journal: j, out: io.Discard, redact: guard.NewRedactor()}
		w.state = healer.State{Doing: healer.Act, Tries: []healer.Try{{Remedy: healer.Remedy{Kind: healer.Model}}}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		began, wait, n := time.Now(), w.patience(ctx), 0
		for ; wait(ctx, errors.New("nobody listens")); n++ {
			if n > 100 {
				t.Fatal("it is waited for without an end")
			}
		}
		if took := time.Since(began); n != 7 || took != (5+10+20+40+60+60+60)*time.Second {
			t.Errorf("it waits %d times, for %v", n, took)
		}
		if w.state.Unreached != "nobody listens" {
			t.Errorf("the state says %q", w.state.Unreached)
		}
		w.order = &healer.Order{Dir: dir}
		w.transcript(1, &words{})(agent.Event{Kind: "reply"})
		if w.state.Unreached != "" {
			t.Errorf("it answers, and the state says %q", w.state.Unreached)
		}
		cancel()
		if w.patience(ctx)(ctx, errors.New("nobody listens")) {
			t.Error("it is waited for when the attempt is over")
		}
	})
}
