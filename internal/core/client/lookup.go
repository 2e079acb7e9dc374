//go:build linux

package client

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/process"
)

// insert adds a process to the indexes, unless there is one with its id, and
// returns the one that is there then.
func (m *Manager) insert(p *proc) *proc {
	m.mu.Lock()
	if in := m.procs[p.id]; in != nil {
		m.mu.Unlock()
		return in
	}
	m.procs[p.id] = p
	at := len(m.order)
	select {
	case <-m.scanned: // answers to starts may come in another order
		for at > 0 && byStart(m.order[at-1], p) > 0 {
			at--
		}
	default: // sorted when all are there
	}
	m.order = slices.Insert(m.order, at, p)
	if p.live {
		m.slots[p.ref.Slot] = p
		if in := m.pids[p.pid]; in == nil || byStart(in, p) < 0 {
			m.pids[p.pid] = p
		}
	}
	m.mu.Unlock()
	if p.live {
		p.mu.Lock()
		p.startIdle()
		p.mu.Unlock()
		p.changed() // what was marked before we listened
	}
	return p
}

// retired frees the slot of a process that is over.
func (m *Manager) retired(p *proc) {
	m.mu.Lock()
	m.vacate(p)
	m.mu.Unlock()
	p.mu.Lock()
	p.stopIdle()
	p.mu.Unlock()
	p.endInput()
	failpoint.Hit(failpoint.FinalCopied)
	m.retireSlot(p.ref)
}

// vacate takes a process that is over out of the indexes of live ones. m.mu is
// held.
func (m *Manager) vacate(p *proc) {
	if m.slots[p.ref.Slot] == p {
		m.slots[p.ref.Slot] = nil
	}
	if m.pids[p.pid] == p {
		delete(m.pids, p.pid)
	}
}

func (m *Manager) retireSlot(ref wire.Ref) {
	m.retiring.Lock()
	defer m.retiring.Unlock()
	m.retiring.refs = append(m.retiring.refs, ref)
	if len(m.retiring.refs) == 1 {
		time.AfterFunc(retireAfter, m.retire)
	}
}

// retireAfter gathers slots to give back: the keeper is woken for many at once.
const retireAfter = 20 * time.Millisecond

func (m *Manager) retire() {
	m.retiring.Lock()
	refs := m.retiring.refs
	m.retiring.refs = nil
	m.retiring.Unlock()
	m.link.notify(wire.OpRetire, wire.Refs(refs))
}

// byStart is the order of m.order.
func byStart(a, b *proc) int {
	return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.id, b.id))
}

// Get implements process.Manager.
func (m *Manager) Get(ctx context.Context, sel process.Selector) (process.Process, error) {
	if p := m.unambiguous(sel); p != nil {
		return p, nil
	}
	if err := m.awaitScan(ctx); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, err := process.Resolve(sel, len(m.order), func(i int) process.Names {
		p := m.order[i]
		if p.over() {
			return process.Names{}
		}
		return process.NamesOf(p.id, p.pid, p.spec.Load())
	}, func(i int) bool { return m.order[i].Progress().Exit == nil })
	if err != nil {
		return nil, err
	}
	return m.order[i], nil
}

// unambiguous returns the process that a selector means whatever other processes
// there may be, or nil: the one with its id, or the running one with its pid, which is newer than
// all that had that pid before.
func (m *Manager) unambiguous(sel process.Selector) *proc {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sel.ID != "" || sel.PID == 0 {
		if p := m.procs[sel.ID]; p != nil && !p.over() {
			return p
		}
		return nil
	}
	if p := m.pids[sel.PID]; p != nil && p.Progress().Exit == nil {
		return p
	}
	return nil
}

// List implements process.Manager.
func (m *Manager) List(ctx context.Context, f process.Filter) ([]process.Info, error) {
	if err := m.awaitScan(ctx); err != nil {
		return nil, err
	}
	m.mu.RLock()
	all := slices.Clone(m.order)
	m.mu.RUnlock()
	out := []process.Info{}
	for _, p := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pr := p.Progress()
		if !pr.Removed && f.Matches(p.spec.Load(), pr.Exit == nil) && !p.over() {
			out = append(out, p.info(ctx, pr))
		}
	}
	return out, nil
}

// Watch implements process.Manager.
func (m *Manager) Watch(context.Context) (process.Watcher, error) { return m.watchers.Open(), nil }
