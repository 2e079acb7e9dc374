//go:build linux

// Package client implements process.Manager over the local keeper. The server uses it.
//
// This package holds no authoritative state. The board and the spool's journals say
// which processes exist; the package reads both when it opens, and keeps an index.
// Output never passes through it: readers read the spool files, and are notified when
// the board reports new output.
//
// # Locks
//
// Manager.mu guards the indexes; proc.mu guards one process's subscribers and
// its final state. proc.mu may be taken under Manager.mu, not the reverse.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/gomonitor"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

// Config of a Manager.
type Config struct {
	// StateDir is the state directory of the keeper, absolute.
	StateDir string
	// Environ is the daemon's environment, "K=V", for process.Inherit.
	Environ []string
	Log     *slog.Logger
	// Budget limits the bytes of all spools together; finished processes are freed first,
	// the oldest first. 0: 16 GiB, or, if that is less, a quarter of the filesystem's free
	// space plus the size of the spools at the start.
	Budget int64
	// Keep is the minimum number of bytes kept of each output stream of a running process,
	// if its spec sets none; more are kept if a reader is further behind, up to
	// keeper.DefaultLimit. 0: 256 MiB, and 1 GiB while nobody reads the stream; a
	// sixteenth of the machine's memory if that is less, and 64 MiB at least.
	Keep int64
	// TTL is how long a finished process is kept if its spec sets no TTL. 0: 24 hours.
	TTL time.Duration
	// Sync is when output is synced to the disk if the spec does not set it. SyncDefault:
	// never.
	Sync process.Sync
	// Rebuilt is called when the shared memory was damaged and the keeper has rebuilt it.
	// All processes keep running, but this Manager's state of running processes is
	// invalid, and the caller must open another Manager. Without Rebuilt their readers
	// wait until the Manager is closed.
	Rebuilt func()
}

// Manager implements process.Manager. Close it after use.
type Manager struct {
	cfg      Config
	spool    string
	run      *rundir.Dir
	link     *link
	starters *starters
	machine  *files.Machine
	homes    homes
	watchers process.Watchers
	wake     atomic.Pointer[waker]
	board    atomic.Pointer[board.Board]

	mu       sync.RWMutex
	procs    map[process.ID]*proc         // guarded by mu
	order    []*proc                      // by start; guarded by mu
	slots    [board.Slots]*proc           // live processes by slot; guarded by mu
	pids     map[int]*proc                // live processes by pid, the newest of each; guarded by mu
	starting map[process.ID]chan struct{} // guarded by mu
	unread   map[process.ID]bool          // finished, and still to be read from the spool; guarded by mu
	hello    wire.Hello                   // guarded by mu
	keepers  int                          // hellos so far; guarded by mu

	retiring struct {
		sync.Mutex
		refs []wire.Ref
	}

	made  pulse // room was made, or tried
	swept pulse // the spools were looked at

	// keep and keepUnread are kept of each stream, in bytes, by default: while it is
	// read, and while nobody reads it.
	keep, keepUnread atomic.Int64
	long             chan *proc // whose output is more than that

	admitted atomic.Int64 // bytes of large specs whose start is under way

	grown   atomic.Int64  // bytes added to the spools since retain looked at them
	grew    chan struct{} // holds one value when that is much
	moved   atomic.Bool   // a process has moved since all were looked at last
	stirred chan struct{} // holds one value when the first of them has
	short   chan struct{} // holds one value when space is short
	budget  atomic.Int64  // of all spools, in bytes
	scanned chan struct{} // closed when the spool has been read once
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

var _ process.Manager = (*Manager)(nil)

// Open connects to the keeper and returns; it waits for a keeper that is starting.
// Finished processes are read from the spool in the background: a call about one of
// them waits, a call about a running process does not.
func Open(ctx context.Context, cfg Config) (*Manager, error) {
	run, err := rundir.Open(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.TTL == 0 {
		cfg.TTL = 24 * time.Hour
	}
	m := &Manager{cfg: cfg, machine: new(files.Machine), spool: filepath.Join(cfg.StateDir, rundir.SpoolDir), run: run,
		procs: map[process.ID]*proc{}, pids: map[int]*proc{}, starting: map[process.ID]chan struct{}{}, short: make(chan struct{}, 1),
		grew: make(chan struct{}, 1), stirred: make(chan struct{}, 1), scanned: make(chan struct{})}
	if err := os.MkdirAll(m.spool, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	m.long = make(chan *proc, 64)
	m.setBudget(cfg.Budget)
	if cfg.Budget == 0 {
		m.setBudget(defaultBudget(m.spool, 0)) // until it is known what the spools hold
	}
	// The directory first, the board second: what is unfinished in the one
	// and not on the other has been lost, not just started.
	dirs, err := os.ReadDir(m.spool)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	m.starters = newStarters(run, m.Ping)
	m.link = newLink(run, cfg.Log, m.connected)
	m.wg.Go(m.link.keep)
	select {
	case <-m.link.isUp():
	case <-ctx.Done():
		m.link.close()
		run.Close()
		return nil, fmt.Errorf("%w: no keeper on %s: %w", process.ErrUnavailable, cfg.StateDir, ctx.Err())
	}
	runCtx, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.findUnread(dirs)
	m.wg.Go(func() { m.scan(runCtx) })
	m.wg.Go(func() { m.retain(runCtx) })
	m.wg.Go(func() { m.freePassed(runCtx) })
	return m, nil
}

// Close frees all resources of the Manager. Processes keep running.
func (m *Manager) Close() error {
	m.stop()
	m.link.close()
	m.starters.close()
	if w := m.wake.Load(); w != nil {
		w.stop()
	}
	m.wg.Wait()
	m.watchers.End(process.ErrUnavailable)
	m.run.Close()
	return nil
}

// connected takes over a keeper's board. The same board comes again after a
// crash of the keeper; another one means that the vault was lost too, and with
// it the processes on the former board.
func (m *Manager) connected(h wire.Hello, boardFD, wakeFD int) error {
	b, err := board.Open(boardFD)
	if err != nil {
		unixsock.Close([]int{boardFD, wakeFD})
		return err
	}
	w, err := newWaker(wakeFD)
	if err != nil {
		b.Close()
		return err
	}
	m.mu.Lock()
	m.hello = h
	m.keepers++
	old := m.board.Load()
	if old != nil && old.Same(b) {
		m.mu.Unlock()
		b.Close()
		w.discard()
		m.wakeAll()
		m.discoverAll(old)
		m.feedAgain()
		return nil
	}
	if old != nil && m.hasMoved(b) {
		m.mu.Unlock()
		b.Close()
		w.discard()
		if m.cfg.Rebuilt != nil {
			m.cfg.Rebuilt()
		}
		return errors.New("the keeper has made its board anew, and this server cannot go on with another")
	}
	var lost []*proc
	if old != nil {
		for p := range m.running {
			lost = append(lost, p)
			m.vacate(p)
		}
	}
	m.board.Store(b) // the old board stays mapped: readers may look at it
	m.mu.Unlock()
	for _, p := range lost {
		m.lose(p)
	}
	if was := m.wake.Swap(w); was != nil {
		was.stop()
	}
	m.discoverAll(b)
	failpoint.Hit(failpoint.BoardDiscovered)
	m.wg.Go(func() { m.dispatch(w, b) })
	return nil
}

// hasMoved reports whether another board has processes that are known here from
// the one before: that one was damaged, and nobody is lost. m.mu is held.
func (m *Manager) hasMoved(b *board.Board) bool {
	for i := range b.Used() {
		s := b.Slot(i)
		if p := m.procs[s.ID()]; p != nil && p.live && s.Flags()&board.FlagStarted != 0 && s.Started().Equal(p.started) {
			return true
		}
	}
	return false
}

// overwritten is for a process that is not where it was on the board, though its
// slot was not given back: the keeper is to look, and what the board says is
// believed no more.
func (m *Manager) overwritten(p *proc) {
	if m.board.Load() != p.slot.Board() {
		return // of a board that was lost with all that was on it
	}
	m.cfg.Log.Error("the shared memory of a process was overwritten; the keeper makes it anew", "id", p.id)
	m.link.notify(wire.OpHello, helloRequest)
	if m.cfg.Rebuilt != nil {
		m.cfg.Rebuilt()
	}
}

// dispatch wakes the readers of processes that the board says have moved.
func (m *Manager) dispatch(w *waker, b *board.Board) {
	var touched []*proc
	var strays []uint32
	look := func() {
		touched, strays = touched[:0], strays[:0]
		m.mu.RLock()
		b.Take(func(slot uint32) {
			if p := m.slots[slot]; p != nil {
				touched = append(touched, p)
			} else {
				strays = append(strays, slot)
			}
		})
		m.mu.RUnlock()
		for i, p := range touched {
			if i < promptMost {
				p.prompt()
			} else {
				p.changed()
			}
		}
		for _, slot := range strays {
			m.discover(b, slot)
		}
	}
	var loop gomonitor.Loop
	for {
		look()
		b.Arm()
		look()
		loop.Turn()
		if !w.wait() {
			return
		}
		m.stir()
	}
}

// feedAgain reports input that still waits to the keeper, once the link is up: what
// was reported while there was no keeper reached nobody.
func (m *Manager) feedAgain() {
	up := m.link.isUp()
	m.wg.Go(func() {
		select {
		case <-up:
		case <-m.link.closed:
			return
		}
		m.mu.RLock()
		defer m.mu.RUnlock()
		for p := range m.running {
			// What was delivered may still lie in a terminal's staging pipe.
			if p.slotIsMine() && (p.slot.Flags()&board.FlagStdinMem != 0 || p.slot.Wishes()&board.StdinEOF != 0) {
				p.notifyFeed()
			}
		}
	})
}

func (m *Manager) wakeAll() {
	m.mu.RLock()
	all := slices.Collect(m.running)
	m.mu.RUnlock()
	for _, p := range all {
		p.changed()
	}
}

// running yields the processes on the board. m.mu is held.
func (m *Manager) running(yield func(*proc) bool) {
	for _, p := range &m.slots {
		if p != nil && !yield(p) {
			return
		}
	}
}

// Ping checks whether the keeper answers. If it does not within a short time, the error
// is process.ErrUnavailable, with the reason.
func (m *Manager) Ping(ctx context.Context) error { return m.link.ping(ctx) }

// Facts returns facts about this machine, as the keeper found them: "name=detail" for a
// promise that holds, "name!reason" for one that does not. If the keeper does not
// answer, they are the last reported ones.
func (m *Manager) Facts() []string {
	h, err := m.link.askHello(context.Background())
	if err == nil {
		return append(h.Facts, fmt.Sprintf("keeper_answers=pid %d", h.PID))
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return append(slices.Clone(m.hello.Facts), "keeper_answers!"+m.run.Describe("keeper"))
}

// knows reports whether the keeper that runs has said this fact of itself. A server may be
// newer than its keeper.
func (m *Manager) knows(fact string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.ContainsFunc(m.hello.Facts, func(f string) bool { return strings.HasPrefix(f, fact+"=") })
}

var helloRequest = wire.HelloRequest{Version: wire.Version}
