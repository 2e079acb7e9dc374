//go:build linux

package client

import (
	"path/filepath"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/process"
)

// discoverAll takes over all processes on the board that nobody here knows, and
// gives back the slots whose retirement no keeper was sent.
func (m *Manager) discoverAll(b *board.Board) {
	for i := range b.Used() {
		m.discover(b, i)
	}
}

// discover takes over the process in a slot, if nobody here knows it: a server
// before us started it, or the answer to its start was lost, or is one to a
// server that died meanwhile.
func (m *Manager) discover(b *board.Board, i uint32) {
	s := b.Slot(i)
	gen, id, flags := s.Gen(), s.ID(), s.Flags()
	if flags&board.FlagUsed == 0 || flags&board.FlagStarted == 0 {
		return
	}
	ref, final := wire.Ref{Slot: i, Gen: gen}, flags&board.FlagFinal != 0
	m.mu.Lock()
	if m.slots[i] != nil || m.starting[id] != nil || s.Gen() != gen {
		m.mu.Unlock() // the caller that starts or removes it will register it
		return
	}
	if m.procs[id] != nil {
		m.mu.Unlock()
		if final {
			m.retireSlot(ref)
		}
		return
	}
	done := m.reserve(id)
	m.mu.Unlock()
	defer done()
	dir := filepath.Join(m.spool, string(id))
	j, err := spool.ReadJournal(dir)
	switch {
	case final && (err != nil || !j.SpecTime.Equal(s.Started())):
		// Removed, as far as that went, and perhaps started again in another
		// slot, before the slot was given back.
		m.removeRest(id)
		m.retireSlot(ref)
		return
	case err != nil:
		m.cfg.Log.Warn("process on the board has no journal", "id", id, "err", err)
		return
	}
	if final && j.Exit != nil {
		// The server before us may have freed output since, and pinned: its
		// files say so, and the board does not.
		if p, err := m.loadFinished(id); err == nil {
			m.register(p)
			m.retireSlot(ref)
			return
		}
	}
	p := &proc{m: m, id: id, dir: dir, ref: ref, slot: s, live: true, started: s.Started(), pid: s.PID(), session: sessionOf(s),
		inner: innerOf(j, s.PID()), fresh: true, size: j.Size}
	p.spec.Store(&j.Spec)
	p.keepPlace([4]int64{}, keptFor) // readers of the server before us will be back
	p.pinned.Store(j.Pinned)
	m.register(p)
}

// register adds a process to the indexes, and sends its start, and its exit if it
// has ended, to the watchers. It returns the process that has this id now.
func (m *Manager) register(p *proc) *proc {
	if in := m.insert(p); in != p {
		return in
	}
	m.watchers.Publish(process.Event{Kind: process.EventStarted, ID: p.id, PID: p.pid, Time: p.started})
	if f := p.final.Load(); f != nil && !p.live {
		m.watchers.Publish(process.Event{Kind: process.EventExited, ID: p.id, PID: p.pid, Exit: f.Exit, Time: f.Exit.Time})
		return p
	}
	p.mu.Lock()
	p.fresh = false
	p.mu.Unlock()
	p.changed() // what happened meanwhile
	return p
}

// reserve keeps others from starting and removing an id until done is called. m.mu
// is held, and nobody else holds the id.
func (m *Manager) reserve(id process.ID) (done func()) {
	mine := make(chan struct{})
	m.starting[id] = mine
	return func() {
		m.mu.Lock()
		delete(m.starting, id)
		m.mu.Unlock()
		close(mine)
	}
}
