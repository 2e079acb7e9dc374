//go:build linux

package fakeproc

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

// manager implements process.Manager.
type manager struct {
	wg sync.WaitGroup // every goroutine of every process

	mu       sync.Mutex
	closed   bool                         // guarded by mu
	procs    map[process.ID]*proc         // guarded by mu
	order    []*proc                      // in the order of the starts; guarded by mu
	starting map[process.ID]chan struct{} // closed when the start is over; guarded by mu
	watchers map[*watcher]struct{}        // guarded by mu
}

// New returns a manager whose processes are killed when the test ends.
func New(t testing.TB) process.Manager {
	m := &manager{
		procs:    map[process.ID]*proc{},
		starting: map[process.ID]chan struct{}{},
		watchers: map[*watcher]struct{}{},
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
	m.emit(process.Event{Kind: process.EventStarted, ID: p.id, PID: p.pid, Time: p.started})
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
	defer m.mu.Unlock()
	i, err := process.Resolve(sel, len(m.order), func(i int) process.Names {
		p := m.order[i]
		return process.Names{ID: p.id, PID: p.pid, Name: p.spec.Name, Tag: p.spec.Tag}
	})
	if err != nil {
		return nil, err
	}
	return m.order[i], nil
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

// maxLag is how many events may wait for a watcher.
const maxLag = 4096

// watcher implements process.Watcher.
type watcher struct {
	m     *manager
	ready chan struct{}

	mu     sync.Mutex
	events []process.Event // guarded by mu
	err    error           // guarded by mu
}

// Watch implements process.Manager.
func (m *manager) Watch(context.Context) (process.Watcher, error) {
	w := &watcher{m: m, ready: make(chan struct{}, 1)}
	m.mu.Lock()
	m.watchers[w] = struct{}{}
	m.mu.Unlock()
	return w, nil
}

// emit tells all watchers. No process's mutex is held.
func (m *manager) emit(ev process.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watchers {
		w.add(ev)
	}
}

func (w *watcher) add(ev process.Event) {
	w.mu.Lock()
	if len(w.events) >= maxLag {
		w.events, w.err = nil, process.ErrLagged
	}
	if w.err == nil {
		w.events = append(w.events, ev)
	}
	w.mu.Unlock()
	wake(w.ready)
}

// Next implements process.Watcher.
func (w *watcher) Next() (process.Event, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) > 0 {
		ev := w.events[0]
		w.events = w.events[1:]
		return ev, true, nil
	}
	return process.Event{}, false, w.err
}

// Ready implements process.Watcher.
func (w *watcher) Ready() <-chan struct{} { return w.ready }

// Close implements process.Watcher.
func (w *watcher) Close() error {
	w.m.mu.Lock()
	delete(w.m.watchers, w)
	w.m.mu.Unlock()
	w.mu.Lock()
	w.events, w.err = nil, io.EOF
	w.mu.Unlock()
	wake(w.ready)
	return nil
}

// wake makes a channel of capacity 1 ready.
func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
