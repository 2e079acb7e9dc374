package files

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// inside is a notifier for the files of a sandbox. Fsnotify takes a path of this machine;
// here the directory is one that an Actor has opened in its Root. Its events are those
// of fsnotify, so that watches are the same inside and outside.
type inside struct {
	root  *Root
	file  *os.File // of inotify
	fd    int      // its number, while mu is held and it is not closed
	queue chan fsnotify.Event
	fails chan error
	end   chan struct{} // closed by Close
	done  sync.WaitGroup

	mu     sync.Mutex
	closed bool             // guarded by mu
	paths  map[int32]string // by watch; guarded by mu
	ids    map[string]int32 // guarded by mu
}

func newInside(root *Root) (notifier, error) {
	if !instances.acquire(&root.instances) {
		return nil, ErrWatchLimit
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		instances.give(&root.instances, 1)
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	n := &inside{
		root: root,
		file: os.NewFile(uintptr(fd), "inotify"), fd: fd,
		queue: make(chan fsnotify.Event), fails: make(chan error), end: make(chan struct{}),
		paths: make(map[int32]string), ids: make(map[string]int32),
	}
	n.done.Go(n.run)
	return n, nil
}

func (n *inside) events() <-chan fsnotify.Event { return n.queue }
func (n *inside) errors() <-chan error          { return n.fails }

func (n *inside) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	close(n.end)
	err := n.file.Close()
	instances.give(&n.root.instances, 1)
	watches.give(&n.root.watches, len(n.paths))
	clear(n.paths)
	n.mu.Unlock()
	n.done.Wait()
	return err
}

const noticed = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_DELETE_SELF |
	unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_MOVE_SELF | unix.IN_ATTRIB

func (n *inside) add(a *Actor, path string) error {
	h, err := a.follow(path)
	if err != nil {
		return err
	}
	defer h.close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrClosed
	}
	wd, err := eintr.Get(func() (int, error) { return unix.InotifyAddWatch(n.fd, h.self(), noticed) })
	if err != nil {
		return &os.PathError{Op: "watch", Path: path, Err: err}
	}
	id := int32(wd)
	// The first path of a directory stays its path, as with fsnotify.
	if _, there := n.paths[id]; !there {
		if !watches.acquire(&n.root.watches) {
			_, err := unix.InotifyRmWatch(n.fd, uint32(id))
			return errors.Join(ErrWatchLimit, err)
		}
		n.paths[id], n.ids[path] = path, id
	}
	return nil
}

func (n *inside) remove(path string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, there := n.ids[path]
	if !there || n.closed {
		return nil
	}
	n.drop(id)
	_, err := unix.InotifyRmWatch(n.fd, uint32(id))
	return err
}

// drop forgets a watch. mu is held.
func (n *inside) drop(id int32) {
	if _, there := n.paths[id]; there {
		watches.give(&n.root.watches, 1)
	}
	delete(n.ids, n.paths[id])
	delete(n.paths, id)
}

func (n *inside) run() {
	defer close(n.queue)
	defer close(n.fails)
	buf := make([]byte, 64<<10)
	for {
		size, err := n.file.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			n.fail(err)
			return
		}
		for b := buf[:size]; len(b) >= unix.SizeofInotifyEvent; {
			length := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			if length > len(b) {
				break
			}
			name, _, _ := strings.Cut(string(b[unix.SizeofInotifyEvent:length]), "\x00")
			if !n.notice(int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]), name) {
				return
			}
			b = b[length:]
		}
	}
}

func (n *inside) fail(err error) bool {
	select {
	case n.fails <- err:
		return true
	case <-n.end:
		return false
	}
}

// notice reports one event of the kernel; false: it is closed.
func (n *inside) notice(id int32, mask uint32, name string) bool {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return n.fail(fsnotify.ErrEventOverflow)
	}
	e, ok := n.event(id, mask, name)
	if !ok {
		return true
	}
	select {
	case n.queue <- e:
		return true
	case <-n.end:
		return false
	}
}

func (n *inside) event(id int32, mask uint32, name string) (fsnotify.Event, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	path, there := n.paths[id]
	if !there {
		return fsnotify.Event{}, false
	}
	e := fsnotify.Event{Name: path}
	if name != "" {
		e.Name = filepath.Join(path, name)
	}
	switch {
	case mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0:
		n.drop(id)
		return e, false
	case mask&unix.IN_DELETE_SELF != 0:
		n.drop(id)
		// The watch of the parent reports it.
		if _, parent := n.ids[filepath.Dir(path)]; parent {
			return e, false
		}
	case mask&unix.IN_MOVE_SELF != 0:
		// Nothing says where to.
		n.drop(id)
		if !n.closed {
			_, _ = unix.InotifyRmWatch(n.fd, uint32(id))
		}
	}
	for _, kind := range [...]struct {
		of uint32
		op fsnotify.Op
	}{
		{unix.IN_CREATE | unix.IN_MOVED_TO, fsnotify.Create}, {unix.IN_DELETE | unix.IN_DELETE_SELF, fsnotify.Remove},
		{unix.IN_MODIFY, fsnotify.Write}, {unix.IN_MOVED_FROM | unix.IN_MOVE_SELF, fsnotify.Rename}, {unix.IN_ATTRIB, fsnotify.Chmod},
	} {
		if mask&kind.of != 0 {
			e.Op |= kind.op
		}
	}
	return e, e.Op != 0
}
