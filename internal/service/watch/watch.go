package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/service/config"
)

const (
	// MaxDirs is the most directories that are watched for one service.
	MaxDirs = 10_000
	// missing is how often it is looked for the first directory while it is not there.
	missing = time.Second
	// more is told where nobody knows what has changed.
	more = "more than can be told"
)

// TooManyError: there is more to be watched than may be.
type TooManyError struct {
	Dir   string
	Limit string // what bounds it
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("has too many directories below %s: %s; name fewer in paths, or leave some out with ignore", e.Dir, e.Limit)
}

// Files are those of a place, as driver.Files.
type Files interface {
	Resolve(path string) (string, error)
	List(ctx context.Context, path string, depth uint32) ([]files.Entry, error)
	Watch(path string, opts files.WatchOptions) (files.Watcher, error)
}

// Root is the root directory of a sandbox that files are in, and what is closed when it is let
// go; nil for files that have no root of their own. Another life of the sandbox has another.
func Root(f Files) (root any, gone <-chan struct{}) {
	if in, ok := f.(files.FS); ok && in.Root != nil {
		return in.Root, in.Root.Gone()
	}
	return nil, nil
}

// Watcher watches for one service.
type Watcher struct {
	files Files
	here  bool // files are the daemon's own, on this machine
	dir   string
	match matcher
	delay time.Duration

	now files.Watcher // nil while the first directory is not there
}

// Check reports whether a directory can be watched. One that is not there can be.
func Check(dir string, rules *config.Watch) error {
	n := 0
	m := matcher{rules.Paths, rules.Ignore}
	return below(dir, &m, func(string) error {
		if n++; n > MaxDirs {
			return &TooManyError{dir, fmt.Sprintf("the limit is %d", MaxDirs)}
		}
		return nil
	}, nil)
}

// Open begins to watch: Run reports changes after Open has returned.
func Open(dir string, rules *config.Watch) (*Watcher, error) {
	return open(files.FS{User: files.User{UID: os.Geteuid(), GID: os.Getegid()}}, true, dir, rules)
}

// OpenIn is Open for a directory of a sandbox, whose files are reached by Files alone.
func OpenIn(f Files, dir string, rules *config.Watch) (*Watcher, error) {
	return open(f, false, dir, rules)
}

func open(f Files, here bool, dir string, rules *config.Watch) (*Watcher, error) {
	dir, err := f.Resolve(dir)
	if err != nil {
		return nil, err
	}
	w := &Watcher{files: f, here: here, dir: dir, match: matcher{rules.Paths, rules.Ignore}, delay: rules.Delay.Std()}
	if _, err := w.open(false); err != nil {
		return nil, err
	}
	return w, nil
}

// open begins to watch, if the first directory is there. found: what is in it has changed;
// the name is that of something in it that counts and was reported already.
func (w *Watcher) open(found bool) (name string, err error) {
	opts := files.WatchOptions{Recursive: true, AllowNetwork: true, Follow: w.match.mayHold, Found: found,
		MaxDirs: MaxDirs - 1} // and the first
	now, err := w.files.Watch(w.dir, opts)
	if found && errors.Is(err, files.ErrOverflow) {
		opts.Found, name = false, more
		now, err = w.files.Watch(w.dir, opts)
	}
	w.now = nil
	switch {
	case err == nil:
		w.now = now
		return name, nil
	case errors.Is(err, files.ErrNotExist), errors.Is(err, files.ErrNotDir), errors.Is(err, files.ErrPermission):
		return "", nil
	}
	return "", w.explain(err)
}

func (w *Watcher) explain(err error) error {
	limit := fmt.Sprintf("the limit is %d", MaxDirs)
	switch {
	case !errors.Is(err, files.ErrWatchLimit):
		return err
	case !w.here:
		limit += ", or what is left of the kernel's fs.inotify.max_user_watches and max_user_instances"
	case errors.Is(err, syscall.ENOSPC):
		limit = "the kernel's fs.inotify.max_user_watches is used up"
	case errors.Is(err, syscall.EMFILE):
		limit = "the kernel's fs.inotify.max_user_instances is used up, or descriptors are"
	}
	return &TooManyError{w.dir, limit}
}

// Close ends the watch.
func (w *Watcher) Close() error {
	if w.now == nil {
		return nil
	}
	return w.now.Close()
}

// Run reports changes once no further change has followed for the delay, until ctx
// ends. first is an earlier change, which belongs to the first report; "": none. It ends too
// when gone is closed: then what has changed is told at once, and Rest has what the kernel
// still reports. It does not close. An error: nothing is told any more.
func (w *Watcher) Run(ctx context.Context, gone <-chan struct{}, first string, tell Tell) error {
	b := newBurst(w.delay, tell, w.Sum)
	b.note(first)
	return w.run(ctx, gone, b)
}

func (w *Watcher) run(ctx context.Context, gone <-chan struct{}, b *burst) error {
	again := time.NewTimer(0)
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
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
			b.over()
			return nil
		case <-b.quiet.C:
			err = b.settle(pending)
		case <-again.C:
			var name string
			name, err = w.open(true)
			b.note(name)
		case <-ready:
			err = w.notices(b)
		}
		if err != nil {
			return err
		}
		if w.now == nil {
			again.Reset(missing)
		}
	}
}

// notices notes what has changed, and opens a watch again that has lost something.
func (w *Watcher) notices(b *burst) error {
	err := w.handleEvents(b.note, b.touch)
	switch {
	case errors.Is(err, files.ErrOverflow):
		_ = w.Close() // it has ended
		if _, err := w.open(false); err != nil {
			return err
		}
		b.note(more)
	case err != nil:
		return w.explain(err)
	}
	return nil
}

// Rest returns the name of a file that has changed after Run ended; "": none.
func (w *Watcher) Rest() (name string) {
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
func (w *Watcher) handleEvents(note func(name string), touch func()) error {
	events, err := w.now.Take()
	gone := false
	for _, e := range events {
		switch {
		case e.Name == ".":
			gone = gone || e.Op == files.OpRemove || e.Op == files.OpRename
		case !w.match.counts(e.Name):
		case e.Op == files.OpChmod:
			touch()
		case e.Dir:
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

// below calls dir for the directories at and below root that may hold what counts, and
// file, which may be nil, with the names of files that count. What cannot be read is left
// out.
func below(root string, m *matcher, dir func(path string) error, file func(name string, e fs.DirEntry) error) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		switch {
		case e.IsDir() && !m.mayHold(name):
			return fs.SkipDir
		case e.IsDir():
			return dir(path)
		case file != nil && m.counts(name):
			return file(name, e)
		}
		return nil
	})
}
