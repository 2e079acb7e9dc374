//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/suspendaware"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// settle bounds how long Remove waits for the kernel to empty the tree of a
// process that has exited: it lags a little behind the exit.
const settle = 200 * time.Millisecond

// Remove implements process.Process.
func (p *proc) Remove(ctx context.Context) error {
	if p.over() {
		return process.ErrNotFound
	}
	return p.remove(ctx)
}

func (p *proc) remove(ctx context.Context) error {
	pr := p.final.Load()
	if pr == nil && p.Progress().Exit != nil {
		p.awaitFinal(ctx, settle)
		if pr = p.final.Load(); pr == nil {
			if err := p.letGo(ctx); err != nil {
				return err
			}
			pr = p.final.Load()
		}
	}
	switch {
	case pr == nil:
		return process.ErrRunning
	case pr.Removed:
		return process.ErrNotFound
	}
	m := p.m
	m.mu.Lock()
	for under := m.starting[p.id]; under != nil; under = m.starting[p.id] {
		m.mu.Unlock()
		select {
		case <-under:
		case <-ctx.Done():
			return ctx.Err()
		}
		m.mu.Lock()
	}
	err := p.settled(func(pr *spool.Progress) error {
		pr.Removed = true
		return nil
	})
	if err != nil {
		m.mu.Unlock()
		return err
	}
	// The id is free when its files are gone.
	defer m.reserve(p.id)()
	delete(m.procs, p.id)
	if i := slices.Index(m.order, p); i >= 0 {
		m.order = slices.Delete(m.order, i, i+1)
	}
	m.mu.Unlock()
	failpoint.Hit(failpoint.Removed)
	p.files.Lock()
	if err = spool.RemoveDir(p.dir); err != nil {
		err = fmt.Errorf("remove %s: %w", p.id, err)
	}
	p.files.Unlock()
	p.changed()
	m.watchers.Publish(process.Event{Kind: process.EventRemoved, ID: p.id, PID: p.pid, Time: time.Now()})
	return err
}

// letGoWait bounds how long the keeper may take to say what is left of a process. The keeper's own
// bound is less (forgetWait).
const letGoWait = 10 * time.Second

// letGo asks the keeper to be done with a process that has exited and is about to be
// removed. The error says what is left of it.
func (p *proc) letGo(ctx context.Context) error {
	soon, cancel := suspendaware.Context(ctx, letGoWait)
	defer cancel()
	_, _, err := p.call(soon, wire.OpForget, true, p.ref)
	switch {
	case err == nil, errors.Is(err, process.ErrExited): // or it was over a moment ago
		p.awaitFinal(ctx, settle)
		return nil
	case errors.Is(err, process.ErrUnsupported): // a keeper of before
		return process.ErrRunning
	case ctx.Err() == nil && soon.Err() != nil:
		return &process.UnfinishedError{Left: fmt.Sprintf("the keeper did not say within %v what is left of it", letGoWait)}
	}
	return err
}

// awaitFinal waits until nothing about the process can change any more.
func (p *proc) awaitFinal(ctx context.Context, bound time.Duration) {
	ready := make(chan struct{}, 1)
	defer p.listen(ready)()
	late := time.After(bound)
	for p.final.Load() == nil {
		select {
		case <-ready:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// trimFinished frees the head of a finished stream. The keeper has forgotten
// the process, so its files are ours.
func (p *proc) trimFinished(s process.Stream, before int64) error {
	p.files.Lock()
	defer p.files.Unlock()
	base, was := before&^(spool.BlockSize-1), int64(0)
	err := p.settled(func(pr *spool.Progress) error {
		if before < 0 || before > pr.End[s] {
			return process.ErrOffset
		}
		was = pr.Base[s]
		pr.Base[s] = max(was, base)
		return nil
	})
	if err != nil || base <= was {
		return err
	}
	p.disk.Store(0)
	fd, err := spool.OpenFile(filepath.Join(p.dir, spool.IndexName), unix.O_WRONLY|unix.O_APPEND)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var rec [spool.IndexSize]byte
	spool.IndexRecord{Kind: spool.IndexTrim, Stream: s, Offset: base, Wall: time.Now().UnixNano()}.Put(&rec)
	if _, err := eintr.Get(func() (int, error) { return unix.Write(fd, rec[:]) }); err != nil {
		return err
	}
	failpoint.Hit(failpoint.FinishedTrimmed)
	data, err := spool.OpenStream(p.dir, s)
	if err != nil {
		return err
	}
	defer unix.Close(data)
	return spool.Punch(data, was, base)
}

// settled changes the facts of a finished process, unless it was removed.
func (p *proc) settled(change func(*spool.Progress) error) error {
	for {
		pr := p.final.Load()
		if pr.Removed {
			return process.ErrNotFound
		}
		next := *pr
		if err := change(&next); err != nil {
			return err
		}
		if p.final.CompareAndSwap(pr, &next) {
			return nil
		}
	}
}

// Pin implements process.Process.
func (p *proc) Pin(ctx context.Context, pinned bool) error {
	if p.over() {
		return process.ErrNotFound
	}
	p.pins.Lock()
	defer p.pins.Unlock()
	if p.pinned.Load() == pinned && p.final.Load() != nil && !p.final.Load().Removed {
		return nil // nothing is written, however often it is said
	}
	err := process.ErrExited
	if p.final.Load() == nil {
		_, _, err = p.call(ctx, wire.OpPin, true, wire.Pin{Ref: p.ref, Pinned: pinned})
		if errors.Is(err, process.ErrExited) {
			p.awaitFinal(ctx, settle) // over a moment ago: the keeper leaves its files to us
		}
	}
	if pr := p.final.Load(); pr != nil && errors.Is(err, process.ErrExited) {
		if pr.Removed {
			return process.ErrNotFound
		}
		err = appendJournal(p.dir, spool.AppendPinned(nil, time.Now(), pinned))
	}
	if err == nil {
		p.pinned.Store(pinned)
	}
	return err
}

// expire removes the process unless it was pinned a moment ago.
func (p *proc) expire(ctx context.Context) error {
	p.pins.Lock()
	defer p.pins.Unlock()
	if p.pinned.Load() {
		return nil
	}
	return p.remove(ctx)
}

// free frees the output of a finished process, and what is large of its spec,
// unless it was pinned a moment ago. What it came to stays known.
func (p *proc) free() error {
	p.pins.Lock()
	defer p.pins.Unlock()
	p.files.Lock()
	defer p.files.Unlock()
	if p.pinned.Load() {
		return nil
	}
	err := p.settled(func(pr *spool.Progress) error {
		pr.Base, pr.IndexEnd = pr.End, 0
		return nil
	})
	if err != nil {
		return nil // it was removed
	}
	p.changed() // readers learn it before anything is gone
	if p.nothingKnown() {
		p.left.Store(&spool.Journal{})
		err := spool.DropOutput(p.dir)
		p.disk.Store(0)
		return err
	}
	sync := p.spec.Load().Retention.Sync
	if sync == process.SyncDefault {
		sync = p.m.cfg.Sync
	}
	j, err := spool.Free(p.dir, p.final.Load().End, sync > process.SyncNone)
	p.disk.Store(0)
	if err != nil {
		return err
	}
	spec := j.Spec
	p.spec.Store(&spec)
	j.Spec = process.Spec{}
	p.left.Store(j)
	return nil
}

// appendJournal appends a record to the journal of a process that is over, or
// nothing.
func appendJournal(dir string, rec []byte) error {
	fd, err := spool.OpenFile(filepath.Join(dir, spool.JournalName), unix.O_WRONLY|unix.O_APPEND)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return spool.AppendJournal(fd, rec)
}

// endedAt is when a process was over on CLOCK_BOOTTIME, in ns. The journal knows
// it of one that started since the machine was booted; the age of others is what
// the clock on the wall says now, and not less than nothing.
func endedAt(j *spool.Journal) int64 {
	boot := procfs.BootTime()
	if j.ExitBoot > 0 && j.ExitBoot <= boot && j.Started != nil && j.Started.BootID != "" && j.Started.BootID == procfs.BootID() {
		return j.ExitBoot
	}
	return boot - max(time.Since(j.Exit.Time), 0).Nanoseconds()
}
