package e2bapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/webhook"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/eventlog"
)

// # Deliveries
//
// Each webhook gets its events in their order, one at a time. One that is not taken (2xx) is sent again, after a
// second, and then after twice as long each time, up to a minute, for 24 hours (webhook.For); then it is given up. What
// waits is in the log of events, so a receiver that is away costs nothing, and misses what the log does not keep any
// longer. A server that dies may send one again: it has the same id, and another e2b-delivery-id.
//
// No redirect is followed and no proxy is used: each connection is made by Config.Dial, which looks at the address.

var _ module.Runner = (*Face)(nil)

// Run implements [module.Runner].
func (f *Face) Run(ctx context.Context) error {
	defer close(f.over)
	if f.history == nil {
		<-ctx.Done()
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	cancels := map[string]context.CancelFunc{} // guarded by f.hooks.mu
	restart := func(h *hook, there bool) {
		if cancel := cancels[h.ID]; cancel != nil {
			cancel()
			delete(cancels, h.ID)
		}
		if !there || !h.Enabled || ctx.Err() != nil {
			return
		}
		hctx, cancel := context.WithCancel(ctx)
		cancels[h.ID] = cancel
		wg.Go(func() {
			defer cancel()
			f.deliver(hctx, h)
		})
	}
	f.hooks.mu.Lock()
	f.hooks.restart = restart
	for _, h := range f.hooks.all {
		restart(h, true)
	}
	f.hooks.mu.Unlock()
	<-ctx.Done()
	f.hooks.mu.Lock()
	f.hooks.restart = nil
	f.hooks.mu.Unlock()
	return nil
}

// deliver sends events to a webhook, as it is, until ctx ends.
func (f *Face) deliver(ctx context.Context, h *hook) {
	client := webhook.Client()
	transport := &http.Transport{DialContext: f.dial, MaxIdleConns: 1, IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: webhook.Timeout,
		ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10}
	client.Transport = transport
	defer transport.CloseIdleConnections()
	after := h.After
	for {
		e, ok, changed := f.history.After(after)
		if !ok {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		if after = e.Seq; !h.wants(e.Kind) {
			continue
		}
		if !f.send(ctx, client, h, &e) {
			return
		}
		if err := f.hooks.delivered(h.ID, after); err != nil {
			f.log.Warn("a delivery to a webhook may be repeated", "face", "e2b", "webhook", h.ID, slog.Any("err", err))
		}
	}
}

// send sends an event until it is taken or too old. false: ctx has ended.
func (f *Face) send(ctx context.Context, client *http.Client, h *hook, e *eventlog.Event) bool {
	body, err := json.Marshal(eventOf(e))
	if err != nil { // impossible: our own type
		return true
	}
	sum := sha256.Sum256(append([]byte(h.Secret), body...)) // as the original has it
	m := &webhook.Message{URL: h.URL, Body: body}
	var pause webhook.Pause
	for {
		m.Header = http.Header{
			"E2b-Webhook-Id": {h.ID}, "E2b-Delivery-Id": {string(driver.NewVolumeID())}, "E2b-Signature-Version": {"v1"},
			"E2b-Signature": {base64.RawURLEncoding.EncodeToString(sum[:])},
		}
		err := webhook.Send(ctx, client, m)
		wait := pause.Next()
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case time.Since(e.Time) > webhook.For:
			f.log.Warn("an event is not told to a webhook any more", "face", "e2b", "webhook", h.ID, "event", e.ID, slog.Any("err", err))
			return true
		}
		f.log.Info("a webhook does not take an event", "face", "e2b", "webhook", h.ID, "event", e.ID, "again in", wait, slog.Any("err", err))
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}
