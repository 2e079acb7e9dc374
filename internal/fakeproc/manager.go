//go:build linux

package fakeproc

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

// manager implements process.Manager.
type manager struct {
	wg       sync.WaitGroup // every goroutine of every process
	watchers process.Watchers

	mu       sync.Mutex
	closed   bool                         // guarded by mu
	procs    map[process.ID]*proc         // guarded by mu
	order    []*proc                      // in the order of the starts; guarded by mu
	starting map[process.ID]chan struct{} // closed when the start is over; guarded by mu
}

// New returns a manager whose processes are killed when the test ends.
func New(t testing.TB) process.Manager {
	m := &manager{
		procs:    map[process.ID]*proc{},
		starting: map[process.ID]chan struct{}{},
	}
	t.Cleanup(m.close)
	// What the test itself was started with is not for its processes. A kernel
	// before 5.11 refuses, and they see it.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	return m
}

// close ends all processes and waits for everything that belongs to them.
func (m *manager) close() {
	m.mu.Lock()
	m.closed = true
	all := slices.Clone(m.order)
	m.mu.Unlock()
	for _, p := range all {
		p.end()
	}
	m.wg.Wait()
}

// claim makes one caller the starter of an id, who calls the function returned
// when that is over. Others wait for it and get the same process if they asked
// for the same.
func (m *manager) claim(ctx context.Context, spec *process.Spec) (*proc, func(), error) {
	for {
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			return nil, nil, process.ErrUnavailable
		}
		if p := m.procs[spec.ID]; p != nil {
			m.mu.Unlock()
			if !p.spec.Equal(spec) {
				return nil, nil, fmt.Errorf("%w: %s", process.ErrExists, spec.ID)
			}
			return p, nil, nil
		}
		under := m.starting[spec.ID]
		if under == nil {
			mine := make(chan struct{})
			m.starting[spec.ID] = mine
			m.wg.Add(1)
			m.mu.Unlock()
			return nil, func() {
				m.mu.Lock()
				delete(m.starting, spec.ID)
				m.mu.Unlock()
				close(mine)
				m.wg.Done()
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-under:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// register makes a process findable and tells its start.
func (m *manager) register(p *proc) {
	m.mu.Lock()
	m.procs[p.id] = p
	m.order = append(m.order, p)
	m.mu.Unlock()
	m.watchers.Tell(process.Event{Kind: process.EventStarted, ID: p.id, PID: p.pid, Time: p.started})
}

// forget takes a process out of the indexes; false if it was out already.
func (m *manager) forget(p *proc) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.procs[p.id] != p {
		return false
	}
	delete(m.procs, p.id)
	m.order = slices.DeleteFunc(m.order, func(o *proc) bool { return o == p })
	return true
}

// Get implements process.Manager.
func (m *manager) Get(_ context.Context, sel process.Selector) (process.Process, error) {
	m.mu.Lock()
	all := slices.Clone(m.order)
	m.mu.Unlock()
	i, err := process.Resolve(sel, len(all), func(i int) process.Names {
		p := all[i]
		return process.Names{ID: p.id, PID: p.pid, Name: p.spec.Name, Tag: p.spec.Tag}
	}, func(i int) bool { return all[i].runs() })
	if err != nil {
		return nil, err
	}
	return all[i], nil
}

// List implements process.Manager.
func (m *manager) List(ctx context.Context, f process.Filter) ([]process.Info, error) {
	m.mu.Lock()
	all := slices.Clone(m.order)
	m.mu.Unlock()
	out := []process.Info{}
	for _, p := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		in, err := p.Info(ctx)
		if err == nil && f.Matches(&p.spec, in.Exit == nil) {
			out = append(out, in)
		}
	}
	return out, nil
}

// Watch implements process.Manager.
func (m *manager) Watch(context.Context) (process.Watcher, error) { return m.watchers.Open(), nil }

// wake makes a channel of capacity 1 ready.
func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
