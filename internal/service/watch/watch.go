package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tend-run/tend/internal/service/config"
)

const (
	// MaxDirs is the most directories that are watched for one service.
	MaxDirs = 10_000
	// missing is how often it is looked for the first directory while it is not there.
	missing = time.Second
)

// TooManyError: there is more to be watched than may be.
type TooManyError struct {
	Dir   string
	Limit string // what bounds it
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("has too many directories below %s: %s; name fewer in paths, or leave some out with ignore", e.Dir, e.Limit)
}

// Watcher watches for one service.
type Watcher struct {
	dir   string
	match matcher
	delay time.Duration

	fsn  *fsnotify.Watcher
	dirs map[string]bool // that are watched, absolute
}

// Check reports whether a directory can be watched. One that is not there can be.
func Check(dir string, rules *config.Watch) error {
	n := 0
	m := matcher{rules.Paths, rules.Ignore}
	return below(dir, dir, &m, func(string) error {
		if n++; n > MaxDirs {
			return &TooManyError{dir, fmt.Sprintf("the limit is %d", MaxDirs)}
		}
		return nil
	}, nil)
}

// Open begins to watch: Run reports changes after Open has returned.
func Open(dir string, rules *config.Watch) (*Watcher, error) {
	fsn, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, explain(dir, err)
	}
	w := &Watcher{dir: filepath.Clean(dir), match: matcher{rules.Paths, rules.Ignore}, delay: rules.Delay.Std(), fsn: fsn,
		dirs: map[string]bool{}}
	if _, err := w.add(w.dir); err != nil {
		return nil, errors.Join(err, fsn.Close())
	}
	return w, nil
}

// Close ends the watch. Run calls it.
func (w *Watcher) Close() error { return w.fsn.Close() }

// Run reports changes once no further change has followed for the delay, until ctx
// ends. first is an earlier change, which belongs to the first report; "": none.
func (w *Watcher) Run(ctx context.Context, first string, tell Tell) (err error) {
	defer func() { err = errors.Join(err, w.Close()) }()
	b := newBurst(w.delay, tell, w.Sum)
	b.note(first)
	return w.run(ctx, b)
}

func (w *Watcher) run(ctx context.Context, b *burst) error {
	again := time.NewTimer(0)
	if w.dirs[w.dir] {
		again.Stop()
	}
	pending := func() error { return w.pending(b) }
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.quiet.C:
			if err := b.settle(pending); err != nil {
				return err
			}
		case <-again.C:
			name, err := w.add(w.dir)
			if err != nil {
				return err
			}
			b.note(name)
		case e, ok := <-w.fsn.Events:
			if err := w.notice(e, ok, b); err != nil {
				return err
			}
		case err, ok := <-w.fsn.Errors:
			if err := w.failure(err, ok, b); err != nil {
				return err
			}
		}
		if !w.dirs[w.dir] {
			again.Reset(missing)
		}
	}
}

// pending takes the notices that are there, up to the first change.
func (w *Watcher) pending(b *burst) (err error) {
	before := b.notes
	for range atOnce {
		select {
		case e, ok := <-w.fsn.Events:
			err = w.notice(e, ok, b)
		case failed, ok := <-w.fsn.Errors:
			err = w.failure(failed, ok, b)
		default:
			return nil
		}
		if err != nil || b.notes != before {
			return err
		}
	}
	return nil
}

func (w *Watcher) notice(e fsnotify.Event, ok bool, b *burst) error {
	if !ok {
		return fsnotify.ErrClosed
	}
	name, err := w.handleEvent(e)
	if e.Op == fsnotify.Chmod && name != "" {
		b.touch()
	} else {
		b.note(name)
	}
	return err
}

func (w *Watcher) failure(err error, ok bool, b *burst) error {
	switch {
	case !ok:
		return fsnotify.ErrClosed
	case errors.Is(err, fsnotify.ErrEventOverflow):
		// What was lost may have counted, and may have been directories: also
		// one of ours that was removed and made again.
		w.forget(w.dir)
		if _, err := w.add(w.dir); err != nil {
			return err
		}
		b.note(more)
	case !errors.Is(err, syscall.EINVAL): // of a directory that is gone
		return explain(w.dir, err)
	}
	return nil
}

// handleEvent handles a notice, and returns the name of what has changed by it, or only its mode,
// owner or time; "": nothing that counts.
func (w *Watcher) handleEvent(e fsnotify.Event) (string, error) {
	name, err := filepath.Rel(w.dir, e.Name)
	if err != nil {
		return "", nil
	}
	name = filepath.ToSlash(name)
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		w.forget(e.Name)
		if name == "." {
			return "", nil
		}
	}
	if e.Has(fsnotify.Create) {
		if info, err := os.Lstat(e.Name); err == nil && info.IsDir() {
			found, err := w.add(e.Name)
			return found, err
		}
	}
	if !w.match.counts(name) {
		return "", nil
	}
	return name, nil
}

// add watches a directory and those below, and returns a file there that counts.
func (w *Watcher) add(dir string) (found string, err error) {
	err = below(w.dir, dir, &w.match, func(path string) error {
		if w.dirs[path] {
			return nil
		}
		if len(w.dirs) >= MaxDirs {
			return &TooManyError{w.dir, fmt.Sprintf("the limit is %d", MaxDirs)}
		}
		if err := w.fsn.Add(path); err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) {
				return nil
			}
			return explain(w.dir, err)
		}
		w.dirs[path] = true
		return nil
	}, func(name string, _ fs.DirEntry) error {
		if found == "" {
			found = name
		}
		return nil
	})
	return found, err
}

// forget drops the watches of a directory that has lost its name, and of those below.
func (w *Watcher) forget(path string) {
	if !w.dirs[path] {
		return
	}
	for dir := range w.dirs {
		if dir == path || strings.HasPrefix(dir, path+string(filepath.Separator)) {
			_ = w.fsn.Remove(dir) // the kernel may have dropped it
			delete(w.dirs, dir)
		}
	}
}

// below calls dir for the directories at and below from that may hold what counts, and
// file, which may be nil, with the names of files that count. What cannot be read is left
// out.
func below(root, from string, m *matcher, dir func(path string) error, file func(name string, e fs.DirEntry) error) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
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

func explain(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return &TooManyError{dir, "the kernel's fs.inotify.max_user_watches is used up"}
	case errors.Is(err, syscall.EMFILE):
		return &TooManyError{dir, "the kernel's fs.inotify.max_user_instances is used up, or descriptors are"}
	}
	return fmt.Errorf("watch %s: %w", dir, err)
}
