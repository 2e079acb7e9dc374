package distant

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol/distant/journal"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// maxWatches bounds the paths that one client watches.
const maxWatches = 256

// changeKinds are the kinds of change that clients may ask for. Those that are
// never reported are accepted, too.
var changeKinds = []string{
	"access", "attribute", "close_write", "close_no_write", "create", "delete", "modify", "open", "rename", "unknown",
}

func kindOfChange(op files.Op) string {
	switch op {
	case files.OpCreate:
		return "create"
	case files.OpWrite:
		return "modify"
	case files.OpRemove:
		return "delete"
	case files.OpRename:
		return "rename"
	case files.OpChmod:
		return "attribute"
	}
	return "unknown"
}

func changedMessage(kind, path string) message {
	return wire.Map{"type", "changed", "timestamp", time.Now().Unix(), "kind", kind, "path", path}
}

// watch reports the changes of one path. It is a [source].
type watch struct {
	path   string // absolute
	only   string // a file's name in the directory that is watched; "": all
	origin origin
	kinds  []string // that are reported; empty: all
	files  files.Watcher
	// pending are messages that were taken and not sent yet. They belong to
	// the run.
	pending []message
}

func (w *watch) close() { w.files.Close() }

// run implements [source].
func (w *watch) run(ctx context.Context, c *client) bool {
	for {
		for len(w.pending) > 0 {
			if c.out.event(w.origin, w.pending[0]) != nil {
				return false
			}
			w.pending = w.pending[1:]
		}
		events, err := w.files.Take()
		for _, ev := range events {
			w.report(ev)
		}
		if err != nil && len(w.pending) == 0 {
			if errors.Is(err, files.ErrClosed) {
				return true
			}
			c.unwatched(w)
			return c.out.event(w.origin, faultOf(err)) == nil
		}
		if len(w.pending) > 0 {
			continue
		}
		select {
		case <-w.files.Ready():
		case <-ctx.Done():
			return false
		}
	}
}

func (w *watch) report(ev files.Event) {
	kind := kindOfChange(ev.Op)
	if w.only != "" && ev.Name != w.only || len(w.kinds) > 0 && !slices.Contains(w.kinds, kind) {
		return
	}
	w.pending = append(w.pending, changedMessage(kind, filepath.Join(w.files.Root(), ev.Name)))
}

func (r *fileRequest) watch() (message, func(), error) {
	path, recursive := r.path("path"), r.f.flag("recursive")
	only, except := r.f.strs("only"), r.f.strs("except")
	if err := r.f.end(); err != nil {
		return nil, nil, err
	}
	kinds := only
	if len(except) > 0 {
		if len(kinds) == 0 {
			kinds = changeKinds
		}
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return slices.Contains(except, k) })
		if len(kinds) == 0 {
			return nil, nil, faultf(kindInvalidInput, "no kind of change is left to report; leave some out of except")
		}
	}
	for _, k := range slices.Concat(only, except) {
		if !slices.Contains(changeKinds, k) {
			return nil, nil, faultf(kindInvalidInput, "%.40q is no kind of change", k)
		}
	}
	abs, err := r.fs.Resolve(path)
	if err != nil {
		return nil, nil, err
	}
	js := journal.Watch{Path: abs, Origin: r.call.origin.id, Recursive: recursive, Kinds: kinds}
	w, err := r.c.openWatch(js)
	if err != nil {
		return nil, nil, err
	}
	w.origin = r.call.origin
	if r.c.keys != nil {
		r.c.keys.watching(js)
	}
	return okMessage, func() { r.c.add(w) }, nil
}

// openWatch begins to watch, in place of an earlier watch of the path.
func (c *client) openWatch(js journal.Watch) (*watch, error) {
	w := &watch{path: js.Path, origin: origin{id: js.Origin}, kinds: js.Kinds}
	root := js.Path
	err := c.face.fs.Do(c.ctx, func(a *files.Actor) error {
		info, err := a.Stat(root)
		if err == nil && !info.IsDir() {
			root, w.only = filepath.Dir(root), filepath.Base(root)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	held := c.face.budget.Charge()
	w.files, err = c.face.fs.Watch(root, files.WatchOptions{Recursive: js.Recursive && w.only == "", AllowNetwork: true, Held: held})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	before := c.watches[js.Path]
	full := before == nil && len(c.watches) >= maxWatches
	if !full {
		c.watches[js.Path] = w
	}
	c.mu.Unlock()
	if full {
		w.close()
		return nil, faultf(kindWouldBlock, "%d paths are watched already; unwatch some", maxWatches)
	}
	if before != nil {
		before.close()
	}
	return w, nil
}

func (r *fileRequest) unwatch() (message, error) {
	path := r.path("path")
	abs, err := r.only(path)
	if err != nil {
		return nil, err
	}
	r.c.mu.Lock()
	w := r.c.watches[abs]
	r.c.mu.Unlock()
	if w == nil {
		return nil, faultf(kindNotFound, "%s is not watched", path)
	}
	r.c.unwatched(w)
	w.close()
	return okMessage, nil
}

// unwatched forgets a watch.
func (c *client) unwatched(w *watch) {
	c.mu.Lock()
	mine := c.watches[w.path] == w
	if mine {
		delete(c.watches, w.path)
	}
	c.mu.Unlock()
	if mine && c.keys != nil {
		c.keys.watching(journal.Watch{Path: w.path, Removed: true})
	}
}

// rewatch takes the watches of a journal up again. What changed meanwhile is
// not known, and the client gets an error.
func (c *client) rewatch(watches map[string]journal.Watch) {
	if c.face.fs == nil {
		return
	}
	for _, js := range watches {
		w, err := c.openWatch(js)
		if err != nil {
			c.face.log.Info("path not watched any more", "face", "distant", "path", js.Path, "err", err)
			continue
		}
		w.pending = []message{changedMessage("unknown", js.Path)}
		c.add(w)
	}
}
