package healing

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/supervisor/config"
	"github.com/tend-run/tend/supervisor/watch"
)

// quiet is how long after a start of the service a change of a file is taken for its own.
const quiet = time.Second

// derived is what tools make: no change of it repairs anything.
var derived = []string{".tend", ".venv", "venv", "__pycache__", "dist", "build", ".next", "target", ".cache", "coverage"}

// watcher looks for changes of a project while a service is broken, and at no other time.
type watcher struct {
	changed chan struct{}
	end     context.CancelFunc
	busy    atomic.Int64 // until when changes are the service's own, in Unix ns
}

// watchFiles begins to look. A project that cannot be watched is repaired again when
// somebody asks for it.
func watchFiles(ctx context.Context, wg *sync.WaitGroup, h *config.Healer, state string, log *slog.Logger) *watcher {
	ctx, end := context.WithCancel(ctx)
	w := &watcher{changed: make(chan struct{}, 1), end: end}
	rules := &config.Watch{Paths: config.Strings{"**"}, Delay: config.Duration(300 * time.Millisecond)}
	for _, name := range derived {
		rules.Ignore = append(rules.Ignore, name, "**/"+name)
	}
	rules.Ignore = append(rules.Ignore, h.Data...)
	if rel, err := filepath.Rel(h.Root, state); err == nil && filepath.IsLocal(rel) && rel != "." {
		rules.Ignore = append(rules.Ignore, filepath.ToSlash(rel))
	}
	rules.Ignore = slices.Clip(rules.Ignore)
	files, err := watch.Open(h.Root, rules)
	if err != nil {
		log.Warn("the files of a service that is broken are not watched", "err", err)
		return w
	}
	wg.Go(func() {
		err := files.Run(ctx, func(string) {
			if time.Now().UnixNano() < w.busy.Load() {
				return
			}
			select {
			case w.changed <- struct{}{}:
			default:
			}
		})
		if err != nil && ctx.Err() == nil {
			log.Warn("the files of a service that is broken are not watched any more", "err", err)
		}
	})
	return w
}

// notOurs says that changes of this moment are the service's own.
func (w *watcher) notOurs() { w.busy.Store(time.Now().Add(quiet).UnixNano()) }
