package files

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tend-run/tend/internal/lib/budget"
)

const (
	defaultQueue = 10_000
	// maxQueueBytes bounds the events by what they take: a name may have 4 KiB, and an entry
	// as many again.
	maxQueueBytes = 4 << 20
	// maxWatchDirs is the most directories of one recursive watch.
	maxWatchDirs = 100_000
)

// Watch implements [Watcher] by the kernel's notices.
type Watch struct {
	fs   FS
	root string // as asked for, clean
	opts WatchOptions

	notices *notices       // of run, once that runs
	closing atomic.Bool    // run is to end
	done    sync.WaitGroup // the goroutine of run

	ready chan struct{} // capacity 1

	mu    sync.Mutex
	queue []Event // guarded by mu
	bytes int     // that queue takes; guarded by mu
	taken int     // bytes of the events that the last Take returned; guarded by mu
	err   error   // guarded by mu; why there will be no more events

	// What follows belongs to the goroutine of run.
	names *owners
	// dirs are the directories below root that are watched.
	dirs map[string]bool
	// reported are paths that came into a new directory while it was listed, and were
	// reported as created. The kernel's own event for them may follow.
	reported map[string]bool
}

// Watch starts watching the directory: changes made after it returns are
// reported. Errors are [ErrNotExist], [ErrNotDir], [ErrNetworkMount],
// [ErrWatchLimit], and a [*budget.BusyError].
func (f FS) Watch(path string, opts WatchOptions) (Watcher, error) {
	root, err := f.Resolve(path)
	if err != nil {
		return nil, err
	}
	err = f.do(func(a *Actor) error { return a.mayWatch(root, opts.AllowNetwork) })
	if err != nil {
		return nil, err
	}
	if opts.Queue <= 0 {
		opts.Queue = defaultQueue
	}
	if opts.MaxDirs <= 0 {
		opts.MaxDirs = maxWatchDirs
	}
	n, err := newNotices(f.Root)
	if err != nil {
		return nil, watchError(root, err)
	}
	w := &Watch{
		fs: f, root: root, opts: opts, notices: n, ready: make(chan struct{}, 1), names: f.owners(),
		dirs: make(map[string]bool), reported: make(map[string]bool),
	}
	if err := f.do(w.start); err != nil {
		n.close()
		opts.Held.Release()
		return nil, watchError(root, err)
	}
	w.done.Go(w.run)
	return w, nil
}

func (a *Actor) mayWatch(root string, network bool) error {
	h, err := a.follow(root)
	if err != nil {
		return pathError("watch", root, err)
	}
	defer h.close()
	info, err := h.info()
	if err != nil {
		return pathError("watch", root, err)
	}
	if !info.IsDir() {
		return &PathError{Op: "watch", Path: root, Kind: ErrNotDir}
	}
	if network {
		return nil
	}
	there, err := h.onNetwork()
	if err != nil {
		return pathError("watch", root, err)
	}
	if there {
		return &PathError{Op: "watch", Path: root, Kind: ErrNetworkMount}
	}
	return nil
}

// Root is the watched directory.
func (w *Watch) Root() string { return w.root }

// Ready is sent to when Take has something to return.
func (w *Watch) Ready() <-chan struct{} { return w.ready }

// Take returns the events since the last call, in order. The error is set
// when there will be no more: [ErrOverflow], [ErrWatchLimit], [ErrClosed]; the
// events before it come with it.
func (w *Watch) Take() ([]Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.queue
	w.opts.Held.Give(int64(w.taken)) // the reader is done with what it took before
	w.queue, w.bytes, w.taken = nil, 0, w.bytes
	return events, w.err
}

// Close ends the watch and waits for its goroutine. It may be called twice.
func (w *Watch) Close() error {
	w.closing.Store(true)
	w.notices.stop()
	w.done.Wait()
	w.opts.Held.Release()
	return nil
}

// start adds the first watches. The kernel may report changes at once, and keeps them
// until run reads them.
func (w *Watch) start(a *Actor) error {
	if !w.opts.Recursive {
		return w.notices.add(a, w.root)
	}
	return w.follow(a, w.root, w.opts.Found)
}

// leavesOut reports whether a directory is not to be watched.
func (w *Watch) leavesOut(dir string) bool {
	if w.opts.Follow == nil {
		return false
	}
	name, err := filepath.Rel(w.root, dir)
	return err != nil || !w.opts.Follow(filepath.ToSlash(name))
}

// run moves what the kernel reports to the queue until the watch is closed or
// has failed.
func (w *Watch) run() {
	defer w.notices.close()
	err := w.notices.read(func(path string, ops opSet) error {
		if w.closing.Load() {
			return ErrClosed
		}
		return w.handle(path, ops)
	})
	if _, busy := errors.AsType[*budget.BusyError](err); busy {
		err = ErrOverflow
	}
	if err = watchError(w.root, err); w.closing.Load() {
		err = ErrClosed
	}
	w.end(err)
}

// end says that there are no more events; the first reason stays.
func (w *Watch) end(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	w.wake()
}

func (w *Watch) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

func (w *Watch) handle(path string, ops opSet) error {
	// There may be another one already: two directories may change places. That is told
	// after the loss of the first.
	replaced := false
	if w.opts.Recursive {
		if ops.has(OpCreate) && w.reported[path] {
			ops &^= 1 << OpCreate
		}
		w.drop(w.reported, path)
		if ops.has(OpRename) || ops.has(OpRemove) {
			replaced = ops.has(OpRename) && w.dirs[path]
			w.forget(path)
		}
	}
	dir := ops&ofDir != 0
	// The order of envd for an event that is several things at once.
	for _, op := range [...]Op{OpCreate, OpRename, OpChmod, OpWrite, OpRemove} {
		if !ops.has(op) {
			continue
		}
		if !w.opts.IncludeEntry {
			if err := w.report(nil, path, op, dir); err != nil {
				return err
			}
			continue
		}
		if err := w.fs.do(func(a *Actor) error { return w.report(a, path, op, dir) }); err != nil {
			return err
		}
	}
	if !w.opts.Recursive || !replaced && !(ops.has(OpCreate) && dir) {
		return nil
	}
	return w.fs.do(func(a *Actor) error {
		if info, err := a.stat(path, false); err != nil || !info.IsDir() {
			return nil
		}
		if replaced {
			err := w.keep(w.reported, path)
			if err == nil {
				err = w.report(a, path, OpCreate, true)
			}
			if err != nil {
				return err
			}
		}
		return w.add(a, path, true)
	})
}

// report queues an event. a may be nil if no entries are asked for.
func (w *Watch) report(a *Actor, path string, op Op, dir bool) error {
	name, err := filepath.Rel(w.root, path)
	if err != nil {
		return err
	}
	ev := Event{Name: strings.ToValidUTF8(name, "\uFFFD"), Op: op, Dir: dir && op == OpCreate}
	if w.opts.IncludeEntry && op != OpRemove && op != OpRename {
		// A path that has gone meanwhile has no entry.
		if entry, err := a.entry(path, w.names); err == nil {
			ev.Entry = &entry
		}
	}
	size := ev.size()
	w.mu.Lock()
	if len(w.queue) >= w.opts.Queue || w.bytes+size > maxQueueBytes || w.opts.Held.Add(int64(size)) != nil {
		w.mu.Unlock()
		return ErrOverflow
	}
	w.queue, w.bytes = append(w.queue, ev), w.bytes+size
	w.mu.Unlock()
	w.wake()
	return nil
}

// watchLimit is an ErrWatchLimit for a reason.
type watchLimit struct{ reason error }

func (l *watchLimit) Error() string   { return ErrWatchLimit.Error() }
func (l *watchLimit) Unwrap() []error { return []error{ErrWatchLimit, l.reason} }

func watchError(root string, err error) error {
	switch {
	case errors.Is(err, ErrOverflow):
		return &PathError{Op: "watch", Path: root, Kind: ErrOverflow}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EMFILE), errors.Is(err, ErrWatchLimit):
		return &PathError{Op: "watch", Path: root, Kind: &watchLimit{err}}
	}
	return pathError("watch", root, err)
}
