package healing

import (
	"context"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/supervisor"
)

// noticeAll handles the notices of services.
func (h *Healing) noticeAll() {
	h.mu.Lock()
	seen := h.seen
	h.seen = nil
	h.mu.Unlock()
	for _, n := range seen {
		if h.declared == nil || n.service != h.declared.Service {
			continue
		}
		signal := h.sense.Saw(&n.effect, n.at)
		switch {
		case h.episode != nil && n.effect.Notice != supervisor.NoticeStarted && n.effect.Notice != supervisor.NoticeReady:
			h.episode.signalled(healer.Entry{Kind: healer.Signalled, At: n.at, Signal: &healer.Signal{Kind: n.effect.Notice.String(),
				Text: n.effect.Text, Run: n.effect.Run, At: n.at}})
		case h.episode == nil && signal != nil:
			if h.state.Breaker.Broken {
				break // nothing has changed
			}
			if _, err := h.open(*signal, false, false); err != nil {
				h.c.Log.Warn("nothing is repaired", "service", n.service, "signal", signal.Kind, "err", err)
			}
		case h.watch != nil && n.effect.Notice == supervisor.NoticeStarted && n.at.Sub(h.started) > calm:
			h.watch.notOurs() // what it writes itself is no change that helps
		}
		if n.effect.Notice == supervisor.NoticeStarted {
			h.started = n.at
		}
		switch {
		case h.sense.Ready.IsZero():
		case h.state.Breaker.Broken:
			h.settle.Reset(max(recovered, h.declared.Healer.Hold.Std()))
		case h.sense.Status != healer.Running:
			h.settle.Reset(healer.Settled)
		}
	}
}

// catchUp finds out what happened to the service while its notices were not handled:
// there was no server, no healer was declared, or an episode was ending.
func (h *Healing) catchUp(ctx context.Context) {
	all, err := h.kept.List(ctx)
	if err != nil {
		return // this server ends, too
	}
	_ = h.in(ctx, func() {
		for _, s := range all {
			if h.declared == nil || s.Name != h.declared.Service {
				continue
			}
			switch {
			case s.State.Ready && h.sense.Ready.IsZero():
				h.Saw(s.Name, supervisor.Effect{Notice: supervisor.NoticeReady, Run: s.State.Run})
			case s.State.Phase == supervisor.Failed && s.State.Up && h.episode == nil && !h.state.Breaker.Broken:
				h.Saw(s.Name, supervisor.Effect{Notice: supervisor.NoticeFailed, Run: s.State.Run, Text: s.State.Why})
			}
		}
	})
}

// calm is how long a service must have left alone its files until those that change at its
// next start are its own. While it starts again and again, a change is somebody's.
const calm = 10 * time.Second

// recovered is how long a service that is broken must be ready to count as well.
const recovered = 10 * time.Second

// settled: a service that was broken, or suspected, has been ready for a while.
func (h *Healing) settled() {
	h.sense.Settle(time.Now())
	if h.state.Breaker.Broken && h.episode == nil && !h.sense.Ready.IsZero() {
		h.rearm("it has recovered", true)
	}
}

// filesChanged: somebody has changed the project of a service that is broken.
func (h *Healing) filesChanged() {
	if !h.state.Breaker.Broken || h.episode != nil || h.declared == nil {
		return
	}
	h.rearm("a file of the project has changed", false)
	if err := h.kept.Restart(h.alive, "", []string{h.declared.Service}); err != nil && h.alive.Err() == nil {
		h.c.Log.Warn("a service could not be restarted after a change", "service", h.declared.Service, "err", err)
	}
}

// rearm lets the next fault open an episode.
func (h *Healing) rearm(why string, well bool) {
	h.c.Log.Info("the healer is armed again", "why", why)
	h.state.Breaker.Rearm(well)
	h.sense.Forget()
	h.active()
	h.keep()
}
