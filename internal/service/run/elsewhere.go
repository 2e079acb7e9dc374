package run

import (
	"context"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/probe"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

const (
	// patience is how long a service may serve elsewhere; some open a port for themselves first.
	patience = 10 * time.Second
	// longStart is from when on the time for the start says that nobody is to be impatient.
	longStart = 2 * time.Minute
)

// saysReady is a line with which servers say where they are.
const saysReady config.Pattern = `(?i)\b(ready|listening|running|serving|started)\b.*(:\d{2,5}\b|https?://)`

// awaitElsewhere tells when a run says that it is ready, or listens on some port, but nothing of
// it listens where its startup probe asks. It ends once something does.
func (w *worker) awaitElsewhere(ctx context.Context, p process.Process, n int64, rule *config.Probe, target *probe.Target) {
	within := longStart
	if rule.Start > 0 {
		within = rule.Start.Std()
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	said := make(chan struct{})
	w.s.wg.Go(func() {
		if w.line(ctx, p, saysReady) {
			close(said)
		}
	})
	var since time.Time
	for backoff.Wait(ctx, time.Second) {
		others, asked, err := target.Elsewhere(ctx, rule)
		if err != nil {
			continue // it ends, or a role is away
		}
		if asked {
			return
		}
		why := "it listens on " + strings.Join(others, ", ")
		if len(others) == 0 {
			why = "it has written that it is ready"
			select {
			case <-said:
			default:
				since = time.Time{}
				continue
			}
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) >= patience {
			w.tell(supervisor.Event{Kind: supervisor.Elsewhere, Run: n, Text: why + supervisor.NotWhereAsked + rule.Where()})
			return
		}
	}
}
