package work

import (
	"context"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/backoff"
)

// Pauses between requests to a model that does not answer, beside those in which the
// client of the model repeats each.
const (
	firstPause = 5 * time.Second
	mostPause  = time.Minute
)

// patience returns what waits for a model that does not answer: with longer and longer
// pauses, for half of what is left of the time in ctx, so that there is time for a repair
// if it does. The journal says that it is waited for.
func (w *worker) patience(ctx context.Context) func(context.Context, error) bool {
	pause := firstPause
	var until time.Time
	if end, ok := ctx.Deadline(); ok {
		until = time.Now().Add(time.Until(end) / 2)
	}
	return func(ctx context.Context, err error) bool {
		if time.Now().Add(pause).After(until) {
			return false
		}
		_ = w.put(healer.Entry{Kind: healer.Note, Model: healer.Unreached, Text: err.Error()}) // nothing depends on it
		waited := backoff.Wait(ctx, pause)
		pause = min(2*pause, mostPause)
		return waited
	}
}
