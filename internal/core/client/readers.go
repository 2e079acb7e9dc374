//go:build linux

package client

import (
	"context"
	"errors"
	"time"

	"github.com/tend-run/tend/process"
)

// Subscribe implements spool.Source. A subscriber counts as a reader.
func (p *proc) Subscribe(ready chan<- struct{}) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enter(ready)
	p.readers++
	p.stopIdle()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, ok := p.subs[ready]; ok {
			delete(p.subs, ready)
			if p.readers--; p.readers == 0 {
				p.startIdle()
			}
		}
	}
}

// listen is Subscribe without counting as a reader.
func (p *proc) listen(ready chan<- struct{}) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enter(ready)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.subs, ready)
	}
}

// enter adds ready to the subscribers. p.mu is held.
func (p *proc) enter(ready chan<- struct{}) {
	if p.subs == nil {
		p.subs = map[chan<- struct{}]func() bool{}
	}
	p.subs[ready] = nil
}

// Prompt implements spool.Prompter.
func (p *proc) Prompt(ready chan<- struct{}, f func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.subs[ready]; ok {
		p.subs[ready] = f
	}
}

// promptMost bounds how many readers of one process are called instead of woken,
// and how many processes that changed at one time: those behind them wait.
const promptMost = 4

// prompt does what changed does, for the dispatcher: it calls the readers that
// asked for it by Prompt, and wakes the others.
func (p *proc) prompt() {
	if p.live && p.final.Load() == nil {
		p.readBoard()
	}
	type call struct {
		ready chan<- struct{}
		f     func() bool
	}
	var calls [promptMost]call
	n := 0
	p.mu.Lock()
	if len(p.subs) > promptMost {
		p.mu.Unlock()
		p.wakeSome()
		return
	}
	for ready, f := range p.subs {
		if f == nil {
			nudge(ready)
			continue
		}
		calls[n] = call{ready, f}
		n++
	}
	p.mu.Unlock()
	for _, c := range calls[:n] {
		if !c.f() {
			nudge(c.ready)
		}
	}
}

// changed reads the board, sends what is new to the watchers, and wakes readers.
func (p *proc) changed() {
	if p.live && p.final.Load() == nil {
		p.readBoard()
	}
	p.wakeSome()
}

// wakeSome wakes the readers. More than crowd of them are not woken each time.
func (p *proc) wakeSome() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.subs) <= crowd {
		p.wakeAll()
		return
	}
	if p.wakeup.pending {
		return
	}
	if wait := time.Until(p.wakeup.next); wait > 0 {
		p.wakeup.pending = true
		time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.wakeup.pending = false
			p.wakeAll()
		})
		return
	}
	p.wakeAll()
}

// crowd is how many readers of one process are woken at each change. If there are
// more, all are woken together, and waking them takes at most a tenth of the time:
// else a process that writes much would compete for its core with the waking of
// its readers, most of whom would find nothing that they can use.
const crowd = 64

// wakeAll wakes all readers. p.mu is held.
func (p *proc) wakeAll() {
	begun := time.Now()
	for ready := range p.subs {
		nudge(ready)
	}
	if len(p.subs) > crowd {
		now := time.Now()
		p.wakeup.next = now.Add(9 * now.Sub(begun))
	}
}

// nudge sends without blocking: one value is enough.
func nudge(ready chan<- struct{}) {
	select {
	case ready <- struct{}{}:
	default:
	}
}

// startIdle and stopIdle run Spec.KillWithoutReaders. p.mu is held.
func (p *proc) startIdle() {
	d := p.spec.Load().KillWithoutReaders
	if d <= 0 || !p.live || p.idle != nil || p.Progress().Exit != nil {
		return
	}
	p.idle = time.AfterFunc(d, func() {
		p.mu.Lock()
		if p.readers > 0 || p.idle == nil {
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		if _, err := p.kill(context.Background(), process.CauseNoReaders); err != nil && !errors.Is(err, process.ErrExited) {
			p.m.cfg.Log.Error("process without readers could not be killed, trying again", "id", p.id, "err", err)
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.readers == 0 {
				p.idle = nil
				p.startIdle()
			}
		}
	})
}

func (p *proc) stopIdle() {
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
}
