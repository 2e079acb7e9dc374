package healing

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/webhook"
)

const maxReport = 2 << 10 // bytes of an error

// report is the message that is sent.
type report struct {
	Status string `json:"status"` // healing, ready, broken
	Error  string `json:"error,omitempty"`
	// Sequence grows with each status: a report with a smaller number is late.
	Sequence int64 `json:"sequence"`
}

// reporter sends the newest status until it is accepted. A status that was not sent
// before the next one came is dropped.
type reporter struct {
	store store
	http  *http.Client
	log   *slog.Logger
	news  chan struct{}

	mu     sync.Mutex
	url    string
	key    string
	newest pending
	// began: a status was told since this server began. Until then ready is told although it
	// was before: whoever takes it may have lost it.
	began bool
}

// pending is the stored state.
type pending struct {
	report
	URL  string    `json:"url,omitempty"`
	Sent bool      `json:"sent"`
	At   time.Time `json:"at"`
}

func newReporter(s store, c *http.Client, log *slog.Logger) *reporter {
	if c == nil {
		c = webhook.Client()
	}
	return &reporter{store: s, http: c, log: log, news: make(chan struct{}, 1)}
}

func (r *reporter) load() error {
	if _, err := r.store.load(reportFile, &r.newest); err != nil {
		return fmt.Errorf("%s: %w", r.store.path(reportFile), err)
	}
	return nil
}

// to says where reports go.
func (r *reporter) to(d *declaration) {
	r.mu.Lock()
	r.url, r.key = "", ""
	if d != nil && d.Healer.Report != nil {
		r.url, r.key = string(d.Healer.Report.URL), d.ReportKey
	}
	r.mu.Unlock()
	r.wake()
}

func (r *reporter) wake() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// tell makes a status the newest one.
func (r *reporter) tell(d *declaration, status, why string) {
	if d == nil || d.Healer.Report == nil {
		return
	}
	why = strings.ToValidUTF8(why[:min(len(why), maxReport)], "")
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.began || status != "ready"
	if r.began = true; known && r.newest.Status == status && r.newest.Error == why && r.newest.URL == r.url {
		return
	}
	now := time.Now()
	r.newest = pending{report: report{Status: status, Error: why, Sequence: max(r.newest.Sequence+1, now.UnixMilli())}, URL: r.url, At: now}
	r.keep()
	r.wake()
}

// keep stores the newest status. r.mu is held.
func (r *reporter) keep() {
	data, err := json.Marshal(r.newest)
	if err == nil {
		err = atomicfile.Synced(r.store.path(reportFile), data, 0o600)
	}
	if err != nil {
		r.log.Error("a report could not be stored", "err", err)
	}
}

// run sends until ctx ends.
func (r *reporter) run(ctx context.Context) {
	var pause webhook.Pause
	for {
		r.mu.Lock()
		p, url, key := r.newest, r.url, r.key
		r.mu.Unlock()
		var again <-chan time.Time
		if url != "" && url == p.URL && p.Sequence > 0 && !p.Sent && time.Since(p.At) < webhook.For {
			err := r.send(ctx, url, key, p.report)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				pause.Reset()
				r.mu.Lock()
				if r.newest.Sequence == p.Sequence {
					r.newest.Sent = true
					r.keep()
				}
				r.mu.Unlock()
				continue
			}
			wait := pause.Next()
			r.log.Warn("a report was not taken", "status", p.Status, "sequence", p.Sequence, "again in", wait, "err", err)
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.news:
			pause.Reset()
		case <-again:
		}
	}
}

func (r *reporter) send(ctx context.Context, url, key string, what report) error {
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return webhook.Send(ctx, r.http, &webhook.Message{URL: url, Key: key, Body: body})
}
