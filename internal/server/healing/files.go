package healing

import (
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/watch"
)

// quiet is how long after a start of the service a change of a file is taken for its own.
const quiet = time.Second

// derived is what tools make: no change of it repairs anything.
var derived = []string{".tend", ".venv", "venv", "__pycache__", "dist", "build", ".next", "target", ".cache", "coverage"}

// watcher looks for changes of a project while a service is broken, and at no other time.
type watcher struct {
	changed chan struct{}
	end     context.CancelFunc
	begun   time.Time    // whose clock nobody sets
	busy    atomic.Int64 // until how long after begun changes are the service's own, in ns
}

// watchFiles begins to look. A project that cannot be watched is repaired again when
// somebody asks for it.
func (h *Healing) watchFiles() *watcher {
	d := h.declared
	ctx, end := context.WithCancel(h.alive)
	w := &watcher{changed: make(chan struct{}, 1), end: end, begun: time.Now()}
	rules := &config.Watch{Paths: config.Strings{"**"}, Delay: config.Duration(300 * time.Millisecond)}
	for _, name := range derived {
		rules.Ignore = append(rules.Ignore, name, "**/"+name)
	}
	rules.Ignore = append(rules.Ignore, d.Healer.Data...)
	if rel, err := filepath.Rel(d.Healer.Root, h.c.StateDir); err == nil && filepath.IsLocal(rel) && rel != "." && d.Sandbox == "" {
		rules.Ignore = append(rules.Ignore, filepath.ToSlash(rel))
	}
	rules.Ignore = slices.Clip(rules.Ignore)
	run, err := h.watching(d, rules)
	if err != nil {
		h.c.Log.Warn("the files of a service that is broken are not watched", "err", err)
		return w
	}
	h.wg.Go(func() {
		err := run(ctx, func(string) {
			if int64(time.Since(w.begun)) < w.busy.Load() {
				return
			}
			select {
			case w.changed <- struct{}{}:
			default:
			}
		})
		if err != nil && ctx.Err() == nil {
			h.c.Log.Warn("the files of a service that is broken are not watched any more", "err", err)
		}
	})
	return w
}

// watching returns what watches a project where it is: with the rights of the service's user,
// if that is said, and in its sandbox.
func (h *Healing) watching(d *declaration, rules *config.Watch) (func(context.Context, func(string)) error, error) {
	if d.Sandbox == "" && d.User == "" || h.c.Watch == nil {
		files, err := watch.Open(d.Healer.Root, rules)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, changed func(string)) error {
			defer files.Close()
			return files.Run(ctx, nil, "", watch.Tell{Changed: changed})
		}, nil
	}
	return func(ctx context.Context, changed func(string)) error {
		return h.c.Watch(ctx, d.Sandbox, d.User, d.Healer.Root, func(name string) {
			if watch.Counts(rules, name) {
				changed(name)
			}
		})
	}, nil
}

// notOurs says that changes of this moment are the service's own.
func (w *watcher) notOurs() { w.busy.Store(int64(time.Since(w.begun) + quiet)) }
