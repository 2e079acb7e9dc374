package files

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// notices are what the kernel reports of directories (inotify(7)). They are of one goroutine,
// but for stop. A directory is one that an [Actor] has opened, so that one of a sandbox is not
// reached by a path of this machine.
type notices struct {
	file *os.File
	fd   int
	// instances and watches are those of the sandbox; nil: of this machine.
	instances, watches *share

	paths map[int32]string // by watch
	ids   map[string]int32 // the reverse of paths
}

// opSet is what has happened at once: bit n is Op n.
type opSet uint8

// ofDir is a bit more: it is a directory.
const ofDir opSet = 1 << 7

func (s opSet) has(op Op) bool { return s&(1<<op) != 0 }

func newNotices(root *Root) (*notices, error) {
	n := &notices{paths: make(map[int32]string), ids: make(map[string]int32)}
	if root != nil {
		n.instances, n.watches = &root.instances, &root.watches
	}
	if !instances.acquire(n.instances) {
		return nil, ErrWatchLimit
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		instances.give(n.instances, 1)
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	n.file, n.fd = os.NewFile(uintptr(fd), "inotify"), fd
	return n, nil
}

// stop has read end.
func (n *notices) stop() { _ = n.file.SetReadDeadline(time.Unix(1, 0)) } // it may be closed

func (n *notices) close() {
	_ = n.file.Close() // nothing was written
	instances.give(n.instances, 1)
	watches.give(n.watches, len(n.paths))
}

const noticed = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_DELETE_SELF |
	unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_MOVE_SELF | unix.IN_ATTRIB

// add is called with the rights of the user. The path is absolute.
func (n *notices) add(a *Actor, path string) error {
	h, err := a.follow(path)
	if err != nil {
		return err
	}
	defer h.close()
	wd, err := eintr.Get(func() (int, error) { return unix.InotifyAddWatch(n.fd, h.self(), noticed) })
	if err != nil {
		return &os.PathError{Op: "watch", Path: path, Err: err}
	}
	id := int32(wd)
	was, there := n.paths[id]
	switch {
	case !there:
		if !watches.acquire(n.watches) {
			_, err := unix.InotifyRmWatch(n.fd, uint32(id))
			return errors.Join(ErrWatchLimit, err)
		}
	case was == path || a.leadsTo(was, h):
		return nil // the first path of a directory stays its path
	default:
		delete(n.ids, was)
	}
	n.remove(path) // of a directory that this one has replaced
	n.paths[id], n.ids[path] = path, id
	return nil
}

// leadsTo reports whether a path is that of a directory that is open.
func (a *Actor) leadsTo(path string, dir *handle) bool {
	h, err := a.follow(path)
	if err != nil {
		return false
	}
	defer h.close()
	at, err := h.info()
	is, ierr := dir.info()
	return err == nil && ierr == nil && os.SameFile(at, is)
}

func (n *notices) remove(path string) {
	if id, there := n.ids[path]; there {
		n.drop(id)
		_, _ = unix.InotifyRmWatch(n.fd, uint32(id)) // the kernel may have dropped it by itself
	}
}

// drop forgets a watch.
func (n *notices) drop(id int32) {
	if path, there := n.paths[id]; there {
		watches.give(n.watches, 1)
		delete(n.paths, id)
		delete(n.ids, path)
	}
}

// read calls do for each notice, until an error.
func (n *notices) read(do func(path string, ops opSet) error) error {
	buf := make([]byte, 64<<10)
	for {
		size, err := n.file.Read(buf)
		if err != nil {
			return err
		}
		for b := buf[:size]; len(b) >= unix.SizeofInotifyEvent; {
			length := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			if length > len(b) {
				break
			}
			name, _, _ := strings.Cut(string(b[unix.SizeofInotifyEvent:length]), "\x00")
			path, ops, err := n.notice(int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]), name)
			if err == nil && ops != 0 {
				err = do(path, ops)
			}
			if err != nil {
				return err
			}
			b = b[length:]
		}
	}
}

// notice is one event of the kernel; without ops there is nothing to report.
func (n *notices) notice(id int32, mask uint32, name string) (path string, ops opSet, err error) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return "", 0, ErrOverflow
	}
	path, there := n.paths[id]
	if !there {
		return "", 0, nil
	}
	switch {
	case mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0:
		n.drop(id)
		return "", 0, nil
	case mask&unix.IN_DELETE_SELF != 0:
		n.drop(id)
		// The watch of the parent reports it.
		if _, parent := n.ids[filepath.Dir(path)]; parent {
			return "", 0, nil
		}
	case mask&unix.IN_MOVE_SELF != 0:
		// Nothing says where to.
		n.drop(id)
		_, _ = unix.InotifyRmWatch(n.fd, uint32(id))
	}
	for _, kind := range [...]struct {
		of uint32
		op Op
	}{
		{unix.IN_CREATE | unix.IN_MOVED_TO, OpCreate}, {unix.IN_DELETE | unix.IN_DELETE_SELF, OpRemove}, {unix.IN_MODIFY, OpWrite},
		{unix.IN_MOVED_FROM | unix.IN_MOVE_SELF, OpRename}, {unix.IN_ATTRIB, OpChmod},
	} {
		if mask&kind.of != 0 {
			ops |= 1 << kind.op
		}
	}
	if ops != 0 && mask&unix.IN_ISDIR != 0 {
		ops |= ofDir
	}
	return filepath.Join(path, name), ops, nil
}
