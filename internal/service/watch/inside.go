package watch

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/service/config"
)

// Files are those of a place that is not this machine, as driver.Files.
type Files interface {
	Resolve(path string) (string, error)
	Stat(path string) (files.Entry, error)
	List(ctx context.Context, path string, depth uint32) ([]files.Entry, error)
	Watch(path string, opts files.WatchOptions) (files.Watcher, error)
}

// Inside is a Watcher of files that are reached by Files alone: those of a sandbox.
type Inside struct {
	files Files
	dir   string
	match matcher
	delay time.Duration

	now files.Watcher // nil while the first directory is not there
}

// Root is the root directory of a sandbox that files are in, and what is closed when it is let
// go; nil for files that have no root of their own. Another life of the sandbox has another.
func Root(f Files) (root any, gone <-chan struct{}) {
	if in, ok := f.(files.FS); ok && in.Root != nil {
		return in.Root, in.Root.Gone()
	}
	return nil, nil
}

// OpenIn is Open for a directory of a sandbox.
func OpenIn(f Files, dir string, rules *config.Watch) (*Inside, error) {
	dir, err := f.Resolve(dir)
	if err != nil {
		return nil, err
	}
	w := &Inside{files: f, dir: dir, match: matcher{rules.Paths, rules.Ignore}, delay: rules.Delay.Std()}
	_, err = w.open(false)
	return w, err
}

// more is told where nobody knows what has changed.
const more = "more than can be told"

// open begins to watch, if the first directory is there. found: what is in it has changed;
// the name is that of something in it that counts and was reported already.
func (w *Inside) open(found bool) (name string, err error) {
	opts := files.WatchOptions{Recursive: true, AllowNetwork: true, Follow: w.match.mayHold, MaxDirs: MaxDirs, Found: found}
	w.now, err = w.files.Watch(w.dir, opts)
	if found && errors.Is(err, files.ErrOverflow) {
		opts.Found, name = false, more
		w.now, err = w.files.Watch(w.dir, opts)
	}
	switch {
	case err == nil:
		return name, nil
	case errors.Is(err, files.ErrNotExist), errors.Is(err, files.ErrNotDir), errors.Is(err, files.ErrPermission):
		w.now = nil
		return "", nil
	}
	w.now = nil
	return "", explainInside(w.dir, err)
}

func explainInside(dir string, err error) error {
	if errors.Is(err, files.ErrWatchLimit) {
		return &TooManyError{dir, "the limit is 10000, or what is left of the kernel's fs.inotify.max_user_watches and max_user_instances"}
	}
	return err
}

// Close ends the watch.
func (w *Inside) Close() error {
	if w.now == nil {
		return nil
	}
	return w.now.Close()
}

// Run is as that of a Watcher, and ends too when gone is closed: then what has changed is told
// at once, and Rest has what the kernel still reports. It does not close. An error: nothing is
// told any more.
func (w *Inside) Run(ctx context.Context, gone <-chan struct{}, first string, tell Tell) error {
	b := newBurst(w.delay, tell, w.Sum)
	b.note(first)
	return w.run(ctx, gone, b)
}

func (w *Inside) run(ctx context.Context, gone <-chan struct{}, b *burst) error {
	again := time.NewTimer(missing)
	defer again.Stop()
	pending := func() error {
		if w.now == nil {
			return nil
		}
		return w.notices(b)
	}
	for {
		var ready <-chan struct{}
		if w.now != nil {
			ready = w.now.Ready()
			again.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
			b.over()
			return nil
		case <-b.quiet.C:
			if err := b.settle(pending); err != nil {
				return err
			}
			if w.now == nil {
				again.Reset(missing)
			}
		case <-again.C:
			name, err := w.open(true)
			if err != nil {
				return err
			}
			b.note(name)
			if w.now == nil {
				again.Reset(missing)
			}
		case <-ready:
			if err := w.notices(b); err != nil {
				return err
			}
			if w.now == nil {
				again.Reset(missing)
			}
		}
	}
}

// notices notes what has changed, and opens a watch again that has lost something.
func (w *Inside) notices(b *burst) error {
	err := w.handleEvents(b.note, b.touch)
	switch {
	case errors.Is(err, files.ErrOverflow):
		_ = w.Close() // it has ended
		if _, err := w.open(false); err != nil {
			return err
		}
		b.note(more)
	case err != nil:
		return explainInside(w.dir, err)
	}
	return nil
}

// Rest returns the name of a file that has changed after Run ended; "": none.
func (w *Inside) Rest() (name string) {
	if w.now != nil {
		err := w.handleEvents(func(n string) { // what it is does not matter
			if name == "" {
				name = n
			}
		}, func() {})
		if name == "" && errors.Is(err, files.ErrOverflow) {
			name = more
		}
	}
	return name
}

// handleEvents notes what has changed, and whether times have. When the first directory is gone
// there is no watch.
func (w *Inside) handleEvents(note func(name string), touch func()) error {
	events, err := w.now.Take()
	gone := false
	for _, e := range events {
		switch {
		case e.Name == ".":
			gone = gone || e.Op == files.OpRemove || e.Op == files.OpRename
		case !w.match.counts(e.Name):
		case e.Op == files.OpChmod:
			touch()
		case e.Op == files.OpCreate && w.isDir(e.Name):
			// A new directory is none; what is in it is reported as created.
		default:
			note(e.Name)
		}
	}
	if gone {
		_ = w.now.Close() // of what is gone
		w.now = nil
		return nil
	}
	return err
}

func (w *Inside) isDir(name string) bool {
	e, err := w.files.Stat(path.Join(w.dir, name))
	return err == nil && e.Type == files.TypeDir && e.Target == ""
}
