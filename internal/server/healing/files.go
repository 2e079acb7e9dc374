package healing

import (
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/heal/git"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/watch"
)

// quiet is how long after a start of the service a change of a file is taken for its own.
const quiet = time.Second

const (
	maxIgnored  = 500              // directories
	ignoredTime = 20 * time.Second // for git to name them
)

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
	known := h.ignored
	if h.ignoredOf != d {
		known = func() map[string]bool { return ignoredDirs(ctx, d) }
	}
	h.wg.Go(func() {
		for ignored, again := known(), true; again && ctx.Err() == nil; ignored = ignoredDirs(ctx, d) {
			var err error
			if again, err = h.watchOnce(ctx, d, *rules, w, ignored); err != nil && ctx.Err() == nil {
				h.c.Log.Warn("the files of a service that is broken are not watched", "err", err)
			}
		}
	})
	return w
}

// learnIgnored has git name the ignored directories while an episode is under way: a change that
// somebody makes right after it would be missed while git looks for them.
func (h *Healing) learnIgnored() {
	d := h.declared
	if d == nil {
		return
	}
	h.ignored, h.ignoredOf = sync.OnceValue(func() map[string]bool { return ignoredDirs(h.alive, d) }), d
	ignored := h.ignored
	h.wg.Go(func() { ignored() })
}

// watchOnce watches until ctx ends, or something has changed in a directory that git ignores
// since it began: then it is to be begun again, without that directory.
func (h *Healing) watchOnce(ctx context.Context, d *declaration, rules config.Watch, w *watcher, ignored map[string]bool) (
	again bool, err error) {
	for dir := range ignored {
		rules.Ignore = append(rules.Ignore, dir)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	run, err := h.watching(d, &rules)
	if err != nil {
		return false, err
	}
	err = run(ctx, func(name string) {
		if int64(time.Since(w.begun)) < w.busy.Load() {
			return
		}
		now := ignoredDirs(ctx, d)
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if now[dir] && !ignored[dir] {
				again = true
				end()
				return
			}
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	})
	return again, err
}

// ignoredDirs are the directories that git ignores, relative to the project: what frameworks
// and package managers make. Single files that it ignores may be people's, as .env is. In a
// sandbox, and where git may not be run, none are known.
func ignoredDirs(ctx context.Context, d *declaration) map[string]bool {
	out := map[string]bool{}
	if d.Sandbox != "" {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, ignoredTime)
	defer cancel()
	r, err := git.Open(ctx, d.Healer.Root)
	if err != nil {
		return out
	}
	list, err := r.Run(ctx, nil, nil, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--", "./"+r.Prefix)
	if err != nil {
		return out
	}
	for name := range strings.SplitSeq(string(list), "\x00") {
		dir, isDir := strings.CutSuffix(strings.TrimPrefix(name, r.Prefix), "/")
		if isDir && dir != "" && !strings.ContainsAny(dir, "*?[{\\!") && len(out) < maxIgnored {
			out[dir] = true
		}
	}
	return out
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
