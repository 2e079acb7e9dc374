package healing

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/process"
)

// open begins an episode, if the breaker allows it. The error says why not.
func (h *Healing) open(signal healer.Signal, asked, dry bool) (string, error) {
	return h.openOrder(signal, asked, dry, "", "")
}

// openOrder is open, of an order that applies what another episode holds.
func (h *Healing) openOrder(signal healer.Signal, asked, dry bool, apply, hash string) (string, error) {
	now, d := time.Now(), h.declared
	if d == nil {
		return "", errtext.New("no service has a healer; add the line healer: {} to the tend.yaml, and run tend up -d", process.ErrUnsupported)
	}
	if why := h.occupied(); why != "" && !(dry && h.episode == nil) {
		return "", &refusedError{why}
	}
	if why := h.state.Breaker.Allows(now, d.Healer.PerDay, asked); why != "" && !dry {
		if !h.state.Breaker.Broken && !asked {
			h.c.Log.Warn("nothing is repaired", "service", d.Service, "why", why)
			h.state.Breaker.Break(now, why)
			h.keep()
			h.passive()
		}
		return "", &refusedError{why}
	}
	rules, err := h.rulesOf(d.Service)
	if err != nil {
		return "", err
	}
	id := newID(now)
	o := &healer.Order{
		ID: id, Dir: h.store.episode(id), StateDir: h.c.StateDir, Keys: h.store.path(declaredFile), URL: h.c.URL, File: d.File,
		Rules: rules.Rules, Healer: d.Healer, Service: d.Service, Signal: signal, DryRun: dry, At: now,
		SandboxID: h.sandboxNow(rules.Rules), Apply: apply, Hash: hash,
	}
	if l := h.state.Last; l != nil && !asked && !dry && l.SandboxID == o.SandboxID && h.sense.First(now).Before(l.Until) {
		o.Last = &l.Back
	}
	was := h.state
	if !dry {
		h.state.Breaker.Begin(now)
		h.state.Newest, h.state.Ended = id, healer.Running
	}
	if err := h.launch(o, was); err != nil {
		return "", err
	}
	h.active()
	return id, nil
}

// catchEnd concludes an episode whose journal is at its end, also if no news of that has come
// yet: others have read so.
func (h *Healing) catchEnd() {
	if f := h.episode; f != nil {
		if f.read(h); f.state.Done() {
			h.conclude(f)
		}
	}
}

// occupied says why nothing new can be done for the service now; "": it can.
func (h *Healing) occupied() string {
	h.catchEnd()
	switch {
	case h.episode != nil:
		return "an episode of it is under way: " + h.episode.order.ID
	case h.talking():
		return "a chat works on it: wait, or stop that first"
	}
	return ""
}

// launch records an episode and starts a worker for it. If that fails, the state is
// unchanged.
func (h *Healing) launch(o *healer.Order, was state) error {
	h.state.Episode = o.ID
	// First the state records that there is an episode: an episode with only a directory
	// would never be followed.
	err := h.store.save(stateFile, h.state)
	if err == nil {
		err = begin(o)
	}
	if err != nil {
		h.c.Log.Error("an episode could not be begun", "err", err)
		_ = os.RemoveAll(o.Dir)
		h.state = was
		h.keep()
		return err
	}
	h.prune(o)
	h.follow(o.ID)
	return nil
}

// begin writes what a worker needs, and the order last: with it the episode has begun.
func begin(o *healer.Order) error {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	j, _, err := healer.OpenJournal(o.Path(healer.JournalFile))
	if err != nil {
		return err
	}
	if err := errors.Join(j.Append(opened(o)), j.Close()); err != nil {
		return err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return atomicfile.Synced(o.Path(healer.OrderFile), data, 0o600)
}

// opened is the first entry of a journal.
func opened(o *healer.Order) healer.Entry {
	e := healer.Entry{At: o.At, Kind: healer.Opened, ID: o.ID, Service: o.Service, DryRun: o.DryRun, Signal: &o.Signal}
	if o.Back != nil {
		e.Back = o.Back.Episode
	}
	return e
}

func (h *Healing) rulesOf(service string) (*run.Status, error) {
	all, err := h.kept.List(h.alive)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == service {
			return &all[i], nil
		}
	}
	return nil, fmt.Errorf("there is no service %.80q: %w", service, process.ErrNotFound)
}

// refusedError: it cannot be repaired now.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }
func (e *refusedError) Unwrap() error { return process.ErrRunning }
