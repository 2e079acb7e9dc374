package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
)

// sweepEvery is how often sandboxes are looked at, and removed ones cleared away.
const sweepEvery = 5 * time.Second

// sweepSeldom is the same while there are none. Creations set the clock.
const sweepSeldom = 10 * time.Minute

// Run ends sandboxes whose time is up, notes those whose container has ended, syncs records to
// the disk and removes destroyed sandboxes. It returns nil when ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer d.expiring.Wait()
	defer d.disconnectAll()
	wg.Go(func() { d.tidy(ctx) })
	var others sync.WaitGroup
	others.Go(func() { d.sweepLayers(ctx) })
	others.Go(func() { d.runBuilds(ctx) })
	others.Go(func() { d.makeSnapshots(ctx) })
	others.Go(func() { d.keepSpare(ctx, &d.spares) })
	others.Go(func() { d.keepSpare(ctx, &d.warm) })
	defer others.Wait()
	for {
		wait := sweepEvery
		if d.sweep(ctx, time.Now()) && len(d.containers.All()) == 0 && !d.strays.Load() {
			wait = sweepSeldom
		}
		if !d.clock.Wait(ctx, wait) {
			return nil
		}
	}
}

// enter adds a sandbox before anything of it is made, and has it looked at soon.
func (d *Driver) enter(s *sandbox, rec *record) error {
	if err := d.containers.Add(s, &rec.Record); err != nil {
		return err
	}
	d.clock.Set(time.Now().Add(sweepEvery))
	return nil
}

// sweep reports whether the keeper was there.
func (d *Driver) sweep(ctx context.Context, now time.Time) bool {
	if err := d.join(ctx); err != nil {
		return false // without the keeper nothing can be ended
	}
	d.reconnect(ctx)
	d.expire(ctx, now)
	if len(d.containers.All()) > 0 || d.strays.Swap(false) { // else the keeper is left alone
		d.notice(ctx)
	}
	for _, s := range d.containers.All() {
		if err := s.sync(); err != nil {
			d.log.Warn("record of a sandbox is not on the disk", slog.String("id", string(s.id)), slog.Any("err", err))
		}
	}
	return true
}

// mostExpiring is how many sandboxes are ended at a time.
const mostExpiring = 64

// expire ends sandboxes whose time is up. One that takes long holds up no other: it is
// not waited for, and is not looked at again until that is over.
func (d *Driver) expire(ctx context.Context, now time.Time) {
	var all sync.WaitGroup
	for _, s := range d.containers.All() {
		if !s.expires(now) || !s.expiring.CompareAndSwap(false, true) {
			d.clock.Set(s.deadline())
			continue
		}
		all.Add(1)
		d.expiring.Go(func() {
			defer all.Done()
			defer s.expiring.Store(false)
			select {
			case d.ends <- struct{}{}:
				defer func() { <-d.ends }()
			case <-ctx.Done():
				return
			}
			err := s.expire(ctx, now)
			if err == nil {
				d.clock.Set(s.deadline())
			} else if ctx.Err() == nil {
				d.log.Warn("sandbox could not be ended at its time", slog.String("id", string(s.id)), slog.Any("err", err))
			}
		})
	}
	done := make(chan struct{})
	d.expiring.Go(func() { all.Wait(); close(done) })
	select {
	case <-done:
	case <-time.After(sweepEvery):
	}
}

// expires reports whether expire may have something to do.
func (s *sandbox) expires(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.rec
	return r.Destroying || r.Due(now) != sandboxrecord.DueNothing || r.IdleTTL > 0 && now.Sub(s.active) >= r.IdleTTL
}

// expire ends the sandbox if its time is up.
func (s *sandbox) expire(ctx context.Context, now time.Time) error {
	s.mu.Lock()
	rec, active, hidden := s.rec, s.active, s.hidden || s.gone
	s.mu.Unlock()
	if hidden {
		return nil
	}
	if rec.Destroying || rec.PausedAt.IsZero() {
		switch rec.Due(now) {
		case sandboxrecord.DueDestroy:
			reason := driver.DestroyedAtTime
			if rec.Destroying {
				reason = driver.DestroyedAgain
			}
			return s.destroy(ctx, reason)
		case sandboxrecord.DuePause:
			return s.pauseDue(ctx, !rec.FilesAlone)
		}
	}
	if !rec.StoppedAt.IsZero() || !rec.PausedAt.IsZero() || rec.IdleTTL == 0 || now.Sub(active) < rec.IdleTTL {
		return nil
	}
	live, err := sandboxrecord.List(ctx, s.d.cfg.Manager, s.id, true)
	if err != nil {
		return err
	}
	if len(live) > 0 {
		s.Touch()
		return nil
	}
	return s.Stop(ctx)
}

// pauseDue pauses it, with its memory where that is wanted and can be.
func (s *sandbox) pauseDue(ctx context.Context, memory bool) error {
	err := s.pause(ctx, memory)
	if memory && (errors.Is(err, driver.ErrUnsupported) || errors.Is(err, errStartHangs)) {
		err = s.pause(ctx, false)
	}
	if errors.Is(err, driver.ErrPaused) || errors.Is(err, driver.ErrStopped) || errors.Is(err, driver.ErrNotFound) {
		return nil // somebody was first
	}
	return err
}

// notice finds sandboxes whose container has ended by itself, and ends containers that no sandbox
// has: a sandbox is in the registry before its container is made.
func (d *Driver) notice(ctx context.Context) {
	there, err := d.cfg.Engine.List(ctx)
	if err != nil {
		d.strays.Store(true)
		return
	}
	live := map[driver.ID]bool{}
	for _, in := range there {
		live[driver.ID(in.ID)] = true
		if _, ok := d.containers.Get(string(in.ID)); !ok { // of a creation whose answer was lost
			if err := d.cfg.Engine.End(ctx, in.ID); err != nil {
				d.strays.Store(true)
				d.log.Warn("container without a sandbox", slog.String("id", string(in.ID)), slog.Any("err", err))
			}
		}
	}
	for _, s := range d.containers.All() {
		if live[s.id] || !s.life.TryLock() { // one that just changes is looked at the next time
			continue
		}
		if err := s.noticeEnd(ctx); err != nil {
			d.log.Warn("sandbox that has ended", slog.String("id", string(s.id)), slog.Any("err", err))
		}
		s.life.Unlock()
	}
}

// noticeEnd notes that there is no container any more, if that is so. s.life is held.
func (s *sandbox) noticeEnd(ctx context.Context) error {
	s.mu.Lock()
	live := s.rec.live() && !s.hidden && !s.gone
	s.mu.Unlock()
	if !live {
		return nil
	}
	// The list may be older than the container.
	if _, err := s.d.cfg.Engine.Usage(ctx, container.ID(s.id)); err == nil || !isOfContainer(err) {
		return nil
	}
	err := s.change(false, func(r *record) error {
		if r.PausedAt.IsZero() {
			r.stopped(s.endReason())
		}
		r.Memory = false
		return nil
	})
	if err != nil {
		return err
	}
	s.told(driver.EventPaused, nil)
	s.d.log.Warn("sandbox has ended by itself", slog.String("id", string(s.id)))
	return s.end(ctx)
}

// sync forces the record to the disk, if it is not there yet.
func (s *sandbox) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unsynced || s.gone || s.hidden || s.rec.Destroying {
		return nil
	}
	if err := sandboxrecord.Write(s.dir(), &s.rec, true); err != nil {
		return err
	}
	s.unsynced = false
	return nil
}

// discarded counts what this process has moved to the trash, for names there.
var discarded atomic.Uint64

// discard moves a directory to the trash, which tidy empties. It takes the same
// time however much is in it. One that is not there is no error.
func (d *Driver) discard(path string) error {
	name := strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + strconv.FormatUint(discarded.Add(1), 36)
	err := os.Rename(path, filepath.Join(d.trash(), name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		select {
		case d.thrown <- struct{}{}:
		default:
		}
	}
	return err
}

// tidy empties the trash until ctx ends.
func (d *Driver) tidy(ctx context.Context) {
	for {
		if err := d.empty(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("files of destroyed sandboxes are left", slog.Any("err", err))
		}
		select {
		case <-d.thrown:
		case <-ctx.Done():
			return
		}
		for first := time.Now(); time.Since(first) < tidyLatest; { // until nothing is thrown away or started for a moment
			last := time.Unix(0, d.spares.started.Load())
			select {
			case <-d.thrown:
				continue
			case <-ctx.Done():
				return
			case <-time.After(tidyEases):
			}
			if !time.Unix(0, d.spares.started.Load()).After(last) {
				break
			}
		}
	}
}

// Removing the files of a sandbox costs about what making them did. It is not in the way of who makes and destroys sandboxes
// one after the other: it waits until nothing is destroyed or started for tidyEases, at most for tidyLatest.
const tidyEases, tidyLatest = 100 * time.Millisecond, time.Second

// empty removes what is in the trash. A directory in a directory is moved up first: so
// the depth that a program inside made costs neither descriptors nor long
// paths.
func (d *Driver) empty(ctx context.Context) error {
	for {
		names, err := some(d.trash())
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if err := d.remove(ctx, filepath.Join(d.trash(), name)); err != nil {
				return err
			}
		}
	}
}

func (d *Driver) remove(ctx context.Context, dir string) error {
	for os.Remove(dir) != nil {
		open(dir)
		names, err := some(dir)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return os.Remove(dir)
		}
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			path := filepath.Join(dir, name)
			if err := os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
				continue
			}
			open(path)
			if err := d.discard(path); err != nil {
				return fmt.Errorf("remove %s: %w", path, err)
			}
		}
	}
	return nil
}

// open lets a daemon that is not root look into a directory of its own, and move it: a
// program inside, and the kernel, may have closed it. Nothing runs in what is in the trash.
func open(dir string) {
	if os.Geteuid() == 0 {
		return
	}
	if fi, err := os.Lstat(dir); err == nil && fi.IsDir() {
		os.Chmod(dir, 0o700) // if it fails, what follows does
	}
}

// some returns some names of a directory.
func some(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(1024)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
