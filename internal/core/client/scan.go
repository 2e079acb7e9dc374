//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// findUnread notes which of the directories are of processes that are not on
// the board.
func (m *Manager) findUnread(dirs []os.DirEntry) {
	b, onBoard := m.board.Load(), map[process.ID]bool{}
	for i := range b.Used() {
		if s := b.Slot(i); s.Flags()&board.FlagUsed != 0 {
			onBoard[s.ID()] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unread = map[process.ID]bool{}
	for _, d := range dirs {
		if id := process.ID(d.Name()); d.IsDir() && id.Validate() == nil && !onBoard[id] && m.procs[id] == nil {
			m.unread[id] = true
		}
	}
}

// scan reads the finished processes from the spool. An unfinished one that is
// not on the board lost its end to a crash of the machine or of all roles.
func (m *Manager) scan(ctx context.Context) {
	m.mu.RLock()
	ids := slices.Collect(maps.Keys(m.unread))
	m.mu.RUnlock()
	for _, id := range ids {
		if ctx.Err() != nil {
			return
		}
		readingFinished(id)
		p, err := m.loadFinished(id)
		switch {
		case errors.Is(err, process.ErrNotFound) && m.removeRest(id):
		case err != nil:
			m.cfg.Log.Warn("spool of a process is not readable: it is shown as damaged until it is removed, or its time is up", "id", id, "err", err)
			m.insert(m.loadDamaged(id, err))
		default:
			m.insert(p)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.SortStableFunc(m.order, byStart)
	m.unread = nil
	close(m.scanned)
}

// readingFinished is what a test has happen before a finished process is read.
var readingFinished = func(process.ID) {}

// awaitScan waits until all processes are known.
func (m *Manager) awaitScan(ctx context.Context) error {
	select {
	case <-m.scanned:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// removeRest removes a directory without a journal: whoever removed it, or took
// back its start, died before it was done.
func (m *Manager) removeRest(id process.ID) bool {
	dir := filepath.Join(m.spool, string(id))
	if _, err := os.Lstat(filepath.Join(dir, spool.JournalName)); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return spool.RemoveDir(dir) == nil
}

func (m *Manager) onBoard(id process.ID) bool {
	b := m.board.Load()
	for i := range b.Used() {
		if s := b.Slot(i); s.Flags()&board.FlagUsed != 0 && s.ID() == id {
			return true
		}
	}
	return false
}

// loadFinished reads one process from its files. The end of one that has none
// is written down as lost, never invented.
func (m *Manager) loadFinished(id process.ID) (*proc, error) {
	dir := filepath.Join(m.spool, string(id))
	src, j, err := spool.Finished(dir)
	if err != nil {
		return nil, err
	}
	if j.Exit != nil && j.Torn {
		// Nothing that is written behind a torn tail is ever read.
		if _, err := spool.Recover(dir); err != nil {
			m.cfg.Log.Warn("journal of a finished process cannot be repaired", "id", id, "err", err)
		}
	}
	if j.Exit == nil {
		if _, err := spool.Recover(dir); err != nil {
			return nil, err
		}
		lost := &process.Exit{Code: -1, Cause: process.CauseShutdown, Time: time.Now()}
		if err := appendJournal(dir, spool.AppendExited(nil, lost.Time, lost)); err != nil {
			return nil, err
		}
		if src, j, err = spool.Finished(dir); err != nil {
			return nil, err
		}
		m.cfg.Log.Warn("process lost in a shutdown of everything: its end was not witnessed", "id", id)
	}
	if j.Freed {
		// The server that freed it may have died before that was done.
		if left, err := spool.Free(dir, j.FreedAt, false); err != nil {
			m.cfg.Log.Warn("what is left of the output of a finished process cannot be removed", "id", id, "err", err)
		} else {
			j = left
		}
	}
	p := &proc{m: m, id: id, dir: dir, started: j.StartedTime, inner: j.Inside, size: j.Size}
	p.spec.Store(&j.Spec)
	if j.Freed {
		left := *j
		left.Spec = process.Spec{}
		p.left.Store(&left)
	}
	if j.Damaged != "" {
		p.broken = errors.New(j.Damaged)
		m.cfg.Log.Warn("spool of a process is damaged", "id", id, "err", p.broken)
	}
	p.pinned.Store(j.Pinned)
	if j.Started != nil {
		p.pid = j.Started.PID
	}
	final := src.Progress()
	final.PID, final.Started = p.pid, p.started
	p.ended.Store(endedAt(j))
	p.took.Store(&j.Input)
	p.final.Store(&final)
	return p, nil
}

// loadDamaged is what is known of a process whose journal cannot be read: that
// there was one.
func (m *Manager) loadDamaged(id process.ID, why error) *proc {
	p := &proc{m: m, id: id, dir: filepath.Join(m.spool, string(id)), broken: why}
	if !errors.Is(why, process.ErrDamaged) {
		p.broken = fmt.Errorf("%w: %w", process.ErrDamaged, why)
		if errors.Is(why, process.ErrNotFound) {
			p.broken = fmt.Errorf("%w: its journal does not say what was started", process.ErrDamaged)
		}
	}
	p.spec.Store(&process.Spec{ID: id})
	p.took.Store(&spool.Input{})
	p.ended.Store(procfs.BootTime())
	p.final.Store(&spool.Progress{EOF: [4]bool{true, true, true, true}, TreeGone: true,
		Exit: &process.Exit{Code: -1, Cause: process.CauseLost, Time: time.Now()}})
	return p
}

// lose ends a process whose keeper and vault are both gone.
func (m *Manager) lose(p *proc) {
	loaded, err := m.loadFinished(p.id)
	if err != nil {
		m.cfg.Log.Error("process lost, and its spool is not readable", "id", p.id, "err", err)
		pr := p.board()
		pr.Exit = &process.Exit{Code: -1, Cause: process.CauseShutdown, Time: time.Now()}
		p.ended.Store(procfs.BootTime())
		p.took.CompareAndSwap(nil, p.inputTaken())
		p.final.CompareAndSwap(nil, &pr)
	} else {
		p.ended.Store(loaded.ended.Load())
		p.took.CompareAndSwap(nil, loaded.took.Load())
		p.final.CompareAndSwap(nil, loaded.final.Load())
	}
	p.endInput()
	p.mu.Lock()
	p.stopIdle()
	fresh := (board.FlagExited | board.FlagTreeGone) &^ p.sent
	p.sent |= fresh
	p.mu.Unlock()
	if e := p.final.Load().Exit; fresh&board.FlagExited != 0 {
		m.watchers.Publish(process.Event{Kind: process.EventExited, ID: p.id, PID: p.pid, Exit: e, Time: e.Time})
	}
	if fresh&board.FlagTreeGone != 0 {
		m.watchers.Publish(process.Event{Kind: process.EventTreeGone, ID: p.id, PID: p.pid, Time: time.Now()})
	}
	p.changed()
}
