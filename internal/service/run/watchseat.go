package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/watch"
)

// What is watched in a sandbox is of one life of it: another one has other mounts. So a run
// that starts in a sandbox waits until the files of this life are watched, and what a run
// could have read before it changed is always noticed. A pause with memory is of the same
// life.

// watchWait bounds how long a start waits for its watch. What cannot be watched runs even so.
const watchWait = 5 * time.Second

// life is one life of a sandbox: its root directory, or its name where it has none of its own.
type life any

func lifeOf(key string, f driver.Files) life {
	if root, _ := watch.Root(f); root != nil {
		return root
	}
	return key
}

// watchSeat is a watch in one life of a sandbox.
type watchSeat struct {
	w    *watch.Watcher
	of   life
	gone <-chan struct{} // closed when the root is let go
}

// sitDown begins to watch in a sandbox that runs.
func sitDown(in driver.Sandbox, at *watchedFiles) (*watchSeat, error) {
	f, err := in.Files(at.user, at.dir)
	if err != nil {
		return nil, err
	}
	w, err := watch.OpenIn(f, "", at.rules)
	if err != nil {
		return nil, err
	}
	s := &watchSeat{w: w, of: lifeOf(at.sandbox, f)}
	_, s.gone = watch.Root(f)
	return s, nil
}

// insideWatch is what starts wait for.
type insideWatch struct {
	mu    sync.Mutex
	of    life          // in which files are watched, or cannot be; guarded by mu
	news  chan struct{} // closed when of changes; guarded by mu
	hurry chan struct{} // capacity 1: somebody waits
}

func newInsideWatch() insideWatch {
	return insideWatch{news: make(chan struct{}), hurry: make(chan struct{}, 1)}
}

func (i *insideWatch) set(of life) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.of = of
	close(i.news)
	i.news = make(chan struct{})
}

// followInside tells of changes in a sandbox, in all of its lives, until ctx ends.
func (w *worker) followInside(ctx context.Context, at *watchedFiles, of string) error {
	var seat *watchSeat
	compared := false
	defer func() {
		w.inside.set(nil)
		if seat != nil {
			_ = seat.w.Close()
		}
	}()
	for ctx.Err() == nil {
		old := seat
		in, err := w.s.running(ctx, at.sandbox)
		if err == nil {
			seat, err = sitDown(in, at)
		}
		if old != nil {
			// The root may have been let go while the sandbox continues, for a snapshot:
			// then nothing is missed between the two.
			if name := old.w.Rest(); err == nil && name != "" {
				w.changed(name)
			}
			_ = old.w.Close()
		}
		var many *watch.TooManyError
		if err != nil {
			if seat = nil; errors.As(err, &many) {
				if f, ferr := in.Files(at.user, at.dir); ferr == nil {
					w.inside.set(lifeOf(at.sandbox, f)) // nobody waits for it
				}
				return err
			}
			select {
			case <-w.inside.hurry:
			case <-time.After(lookEvery):
			case <-ctx.Done():
			}
			continue
		}
		w.inside.set(seat.of)
		first := ""
		if !compared {
			compared = true
			first = w.compare(ctx, of, seat.w.Sum)
		}
		if err := seat.w.Run(ctx, seat.gone, first, w.tellFiles(of)); err != nil {
			return err
		}
	}
	return nil
}

// running finds a sandbox that runs, without using it: one whose use would wake it sleeps on.
func (s *Supervisor) running(ctx context.Context, key string) (driver.Sandbox, error) {
	in, err := s.sandbox(ctx, key)
	if err != nil {
		return nil, err
	}
	is, err := in.Info(ctx)
	if err == nil && is.State != driver.Ready {
		err = driver.ErrStopped
	}
	return in, err
}

// awaitWatch waits until the files of a service are watched in this life of its sandbox.
func (w *worker) awaitWatch(ctx context.Context, r *config.Service) {
	if r.Sandbox == "" || r.Watch == nil {
		return
	}
	in, err := w.s.sandbox(ctx, r.Sandbox)
	if err != nil {
		return // the start fails, too
	}
	f, err := in.Files(r.User, r.Cwd)
	if err != nil {
		return
	}
	of, i := lifeOf(r.Sandbox, f), &w.inside
	late := time.NewTimer(watchWait)
	defer late.Stop()
	for {
		i.mu.Lock()
		now, news := i.of, i.news
		i.mu.Unlock()
		if now == of {
			return
		}
		select {
		case i.hurry <- struct{}{}:
		default:
		}
		select {
		case <-news:
		case <-late.C:
			w.s.c.Log.Warn("a service starts before its files are watched", "service", w.name, "sandbox", r.Sandbox)
			return
		case <-ctx.Done():
			return
		}
	}
}
