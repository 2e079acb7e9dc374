//go:build linux

package keeper

import (
	"bytes"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// The streams of an exit that waits for the disk have ended, and the journal says so
// before the board does. No vault holds them any more, and that is no loss.
func TestAnEndThatOnlyTheJournalKnowsIsNoLoss(t *testing.T) {
	for name, c := range map[string]struct{ ended, lost bool }{
		"ended":          {ended: true},
		"open, and lost": {lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			k := &Keeper{cfg: Config{Log: &log}}
			k.board = proctest.Value(board.Create())(t)
			defer k.board.Close()
			s := k.board.Slot(0)
			p := newProc(wire.Ref{Gen: s.Reserve("id")}, "id", s)
			s.SetStarted(1, time.Now())
			rec := &spool.Recovered{}
			rec.Journal.EOF[process.Stdout], rec.Journal.EOF[process.Stderr] = c.ended, c.ended
			k.restoreStreams(p, fdstore.FDs{}, rec)
			if !p.out[0].eof || !p.out[1].eof {
				t.Error("a stream is open")
			}
			if (log.Len() > 0) != c.lost {
				t.Errorf("the log has %q", log.String())
			}
		})
	}
}
