package files

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"github.com/tend-run/tend/internal/lib/budget"
)

// Op is what happened to a path.
type Op uint8

const (
	OpCreate Op = iota + 1
	OpWrite
	OpRemove
	OpRename // the old name of what was renamed; the new one is an OpCreate
	OpChmod  // mode, owner, times or attributes
)

var opNames = [...]string{"", "CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD"}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "UNKNOWN"
}

// Event is one change.
type Event struct {
	// Name is relative to the watched directory; "." is the directory itself.
	Name string
	Op   Op
	// Entry is set if asked for, and if the path was still there when the
	// event was seen. Removed and renamed paths have none: another file may
	// have taken the name.
	Entry *Entry
}

// size is what an event takes in memory, about, in bytes.
func (ev *Event) size() int {
	n := 64 + len(ev.Name)
	if ev.Entry != nil {
		n += ev.Entry.size()
	}
	return n
}

// size is what an entry takes in memory, about, in bytes.
func (e *Entry) size() int {
	n := 256 + len(e.Name) + len(e.Path) + len(e.Owner) + len(e.Group) + len(e.Target)
	for k, v := range e.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// WatchOptions say what a watch reports.
type WatchOptions struct {
	// Recursive watches all directories below, new ones too.
	Recursive bool
	// IncludeEntry sets Event.Entry.
	IncludeEntry bool
	// AllowNetwork watches network file systems also, where only changes made
	// on this machine are reported.
	AllowNetwork bool
	// Queue is the most events kept for the reader; 0 means 10,000. They have at most 4 MiB
	// of names, too. With more, ErrOverflow.
	Queue int

	// Held is charged for the events that are kept for the reader, until it takes the next
	// ones, and for the directories of a recursive watch. Close gives all of it back. Where
	// it has no room for more, ErrOverflow. Nil: nothing is charged.
	Held *budget.Charge

	// What follows is for a recursive watch.

	// Follow reports whether a directory is watched, by its name with slashes, relative to
	// the watched one; if it is not, everything below it is not watched either. Nil: all
	// are.
	Follow func(name string) bool
	// Found reports existing entries as created at the beginning.
	Found bool
	// MaxDirs is the most directories that are watched; 0 means 100,000. With more,
	// ErrWatchLimit.
	MaxDirs int
}

const (
	defaultQueue = 10_000
	// maxQueueBytes bounds the events by what they take: a name may have 4 KiB, and an entry
	// as many again.
	maxQueueBytes = 4 << 20
	// maxWatchDirs is the most directories of one recursive watch.
	maxWatchDirs = 100_000
)

// Watcher reports the changes in a directory. Close it when done.
type Watcher interface {
	// Root is the directory.
	Root() string
	// Ready has a value when there may be something to take.
	Ready() <-chan struct{}
	// Take returns the events since the last call. An error, after the events
	// before it, says why there will be no more.
	Take() ([]Event, error)
	Close() error
}

// notifier is where the kernel's notices come from. Paths are absolute.
type notifier interface {
	// add is called with the rights of the user.
	add(a *Actor, path string) error
	remove(path string) error
	events() <-chan fsnotify.Event
	errors() <-chan error
	Close() error
}

// byPath is a notifier for paths of this machine.
type byPath struct{ *fsnotify.Watcher }

func (n byPath) add(_ *Actor, path string) error { return n.Add(path) }
func (n byPath) remove(path string) error        { return n.Remove(path) }
func (n byPath) events() <-chan fsnotify.Event   { return n.Events }
func (n byPath) errors() <-chan error            { return n.Errors }

func newNotifier(root *Root) (notifier, error) {
	if root != nil {
		return newInside(root)
	}
	n, err := fsnotify.NewWatcher()
	return byPath{n}, err
}

// Watch implements [Watcher] by the kernel's notices.
type Watch struct {
	fs   FS
	root string // as asked for, clean
	opts WatchOptions
	fsn  notifier
	done sync.WaitGroup // the goroutines of run and runErrors

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
	// renamed is the former name of a watched directory, if the last event was that the watch
	// of its parent has reported it: that of the directory itself may report it next.
	renamed string
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
	fsn, err := newNotifier(f.Root)
	if err != nil {
		return nil, watchError(root, err)
	}
	w := &Watch{
		fs: f, root: root, opts: opts, fsn: fsn, ready: make(chan struct{}, 1), names: f.owners(),
		dirs: make(map[string]bool), reported: make(map[string]bool),
	}
	if err := f.do(w.start); err != nil {
		opts.Held.Release()
		return nil, watchError(root, errors.Join(err, fsn.Close()))
	}
	w.done.Go(w.run)
	w.done.Go(w.runErrors)
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
	err := w.fsn.Close()
	w.done.Wait()
	w.end(ErrClosed)
	w.opts.Held.Release()
	return err
}

// start adds the first watches. The kernel may report changes at once. fsnotify
// keeps them until run reads them.
func (w *Watch) start(a *Actor) error {
	if !w.opts.Recursive {
		return w.fsn.add(a, w.root)
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

// run moves events from fsnotify to the queue until the watch is closed or
// has failed.
func (w *Watch) run() {
	for e := range w.fsn.events() {
		if err := w.handle(e); err != nil {
			if _, busy := errors.AsType[*budget.BusyError](err); busy {
				err = ErrOverflow
			}
			w.end(watchError(w.root, err))
			return
		}
	}
	w.end(ErrClosed)
}

// runErrors reads fsnotify's errors. It has a goroutine of its own because
// fsnotify may send them while it holds the lock that adding a watch needs.
func (w *Watch) runErrors() {
	for err := range w.fsn.errors() {
		// A watch of a directory that was moved and then removed: the kernel
		// has dropped it before fsnotify did.
		if !errors.Is(err, syscall.EINVAL) {
			w.end(watchError(w.root, err))
		}
	}
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

func (w *Watch) handle(e fsnotify.Event) error {
	path := e.Name
	if w.opts.Recursive {
		if e.Has(fsnotify.Create) && w.reported[path] {
			e.Op &^= fsnotify.Create
		}
		w.drop(w.reported, path)
		renamed := w.renamed
		w.renamed = ""
		if e.Has(fsnotify.Rename) {
			if path == renamed {
				e.Op &^= fsnotify.Rename
			} else if w.dirs[path] {
				w.renamed = path
			}
			w.forget(path)
		}
		if e.Has(fsnotify.Remove) {
			w.forget(path)
		}
	}
	// The order of envd for an event that is several things at once.
	for _, op := range [...]struct {
		is     fsnotify.Op
		report Op
	}{
		{fsnotify.Create, OpCreate}, {fsnotify.Rename, OpRename}, {fsnotify.Chmod, OpChmod},
		{fsnotify.Write, OpWrite}, {fsnotify.Remove, OpRemove},
	} {
		if !e.Has(op.is) {
			continue
		}
		if !w.opts.IncludeEntry {
			if err := w.report(nil, path, op.report); err != nil {
				return err
			}
			continue
		}
		if err := w.fs.do(func(a *Actor) error { return w.report(a, path, op.report) }); err != nil {
			return err
		}
	}
	if !w.opts.Recursive || !e.Has(fsnotify.Create) {
		return nil
	}
	return w.fs.do(func(a *Actor) error {
		if info, err := a.stat(path, false); err != nil || !info.IsDir() {
			return nil
		}
		return w.add(a, path, true)
	})
}

// report queues an event. a may be nil if no entries are asked for.
func (w *Watch) report(a *Actor, path string, op Op) error {
	name, err := filepath.Rel(w.root, path)
	if err != nil {
		return err
	}
	ev := Event{Name: strings.ToValidUTF8(name, "\uFFFD"), Op: op}
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

func watchError(root string, err error) error {
	switch {
	case errors.Is(err, fsnotify.ErrEventOverflow), errors.Is(err, ErrOverflow):
		return &PathError{Op: "watch", Path: root, Kind: ErrOverflow}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EMFILE), errors.Is(err, ErrWatchLimit):
		return &PathError{Op: "watch", Path: root, Kind: ErrWatchLimit}
	}
	return pathError("watch", root, err)
}
