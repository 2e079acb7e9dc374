package files

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// maxLinks is how many links one path may lead through, as in the kernel.
const maxLinks = 40

// walkTo does what openat2 does with RESOLVE_NO_MAGICLINKS, for kernels that
// lack it: it goes from name to name and follows the links by itself.
func walkTo(path string, flags int, mode uint32) (int, error) {
	w := &walker{dir: -1, left: strings.Split(strings.Trim(path, "/"), "/")}
	defer w.leave()
	if err := w.enter(unix.AT_FDCWD, "/"); err != nil {
		return -1, err
	}
	for links := 0; ; {
		name, last := w.next()
		if last && (flags&unix.O_NOFOLLOW != 0 || name == ".") {
			return eintr.Get(func() (int, error) { return unix.Openat(w.dir, name, flags, mode) })
		}
		fd, err := eintr.Get(func() (int, error) { return unix.Openat(w.dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0) })
		if err != nil && last && flags&unix.O_CREAT != 0 {
			return eintr.Get(func() (int, error) { return unix.Openat(w.dir, name, flags|unix.O_NOFOLLOW, mode) })
		}
		if err != nil {
			return -1, err
		}
		var st unix.Stat_t
		if err := eintr.Do(func() error { return unix.Fstat(fd, &st) }); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
		switch {
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			if links++; links > maxLinks {
				err = unix.ELOOP
			} else {
				err = w.follow(fd, &st)
			}
			_ = unix.Close(fd)
			if err != nil {
				return -1, err
			}
		case last && flags&unix.O_PATH != 0:
			return fd, nil
		case last:
			_ = unix.Close(fd)
			return eintr.Get(func() (int, error) { return unix.Openat(w.dir, name, flags|unix.O_NOFOLLOW, mode) })
		default:
			w.leave()
			w.dir = fd
		}
	}
}

// walker is on its way along a path.
type walker struct {
	dir  int // where it is; a path only
	left []string
}

// next takes the next name of the path.
func (w *walker) next() (name string, last bool) {
	for len(w.left) > 1 && (w.left[0] == "" || w.left[0] == ".") {
		w.left = w.left[1:]
	}
	name, w.left = w.left[0], w.left[1:]
	if name == "" {
		name = "."
	}
	return name, len(w.left) == 0
}

func (w *walker) enter(at int, name string) error {
	fd, err := eintr.Get(func() (int, error) { return unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return err
	}
	w.leave()
	w.dir = fd
	return nil
}

func (w *walker) leave() {
	if w.dir >= 0 {
		_ = unix.Close(w.dir)
		w.dir = -1
	}
}

// follow puts what a link says before the rest of the path.
func (w *walker) follow(link int, st *unix.Stat_t) error {
	if err := w.mayFollow(link, st); err != nil {
		return err
	}
	buf := make([]byte, unix.PathMax)
	n, err := eintr.Get(func() (int, error) { return unix.Readlinkat(link, "", buf) })
	if err != nil {
		return err
	}
	text := string(buf[:n])
	names := strings.Split(text, "/")
	if len(names)+len(w.left) > unix.PathMax {
		return unix.ENAMETOOLONG
	}
	w.left = append(names, w.left...)
	if filepath.IsAbs(text) {
		return w.enter(unix.AT_FDCWD, "/")
	}
	return nil
}

// mayFollow refuses magic links: of /proc only those directly in it, such as
// self and mounts, are plain ones. It also refuses what the kernel does with
// fs.protected_symlinks, which knows nothing of links that are read as text.
func (w *walker) mayFollow(link int, st *unix.Stat_t) error {
	var dir unix.Stat_t
	if err := eintr.Do(func() error { return unix.Fstat(w.dir, &dir) }); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := eintr.Do(func() error { return unix.Fstatfs(link, &fs) }); err != nil {
		return err
	}
	const procRoot = 1 // inode number of /proc itself
	if uint32(fs.Type) == unix.PROC_SUPER_MAGIC && dir.Ino != procRoot {
		return errMagicLink
	}
	const shared = unix.S_ISVTX | unix.S_IWOTH
	if dir.Mode&shared == shared && st.Uid != dir.Uid && st.Uid != uint32(unix.Geteuid()) {
		return unix.EACCES
	}
	return nil
}
