package files

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// OpenRoot returns the directory that dir is opened on as a Root, with the ids of
// inside beginning at idBase. It makes a descriptor of its own; dir stays the caller's.
// It needs openat2 (Linux 5.6).
func OpenRoot(dir *os.File, idBase uint32) (*Root, error) {
	if idBase > math.MaxUint32-RootIDs {
		return nil, &InvalidError{Field: "id base", Reason: fmt.Sprintf("is %d; the most is %d", idBase, uint32(math.MaxUint32-RootIDs))}
	}
	var own *os.File
	err := control(dir, func(fd int) error {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
		n, err := eintr.Get(func() (int, error) { return unix.Openat2(fd, ".", &how) })
		if err == nil {
			own = os.NewFile(uintptr(n), dir.Name())
		}
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir.Name(), Err: err}
	}
	return &Root{dir: own, base: idBase, gone: make(chan struct{})}, nil
}

// OpenOwnRoot is OpenRoot for a sandbox with one id, which is the daemon's own outside.
func OpenOwnRoot(dir *os.File) (*Root, error) {
	r, err := OpenRoot(dir, 0)
	if err != nil {
		return nil, err
	}
	r.own = true
	return r, nil
}

// control calls do with the descriptor, which is not closed meanwhile: its number
// could be another directory's.
func control(file *os.File, do func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := conn.Control(func(fd uintptr) { err = do(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// tries bounds how often an open is repeated that met a rename: the kernel cannot
// say then whether ".." left the root.
const tries = 100

func (r *Root) openat2(path string, flags int, resolve uint64) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolve | unix.RESOLVE_IN_ROOT}
	err = control(r.dir, func(dir int) error {
		for try := 0; ; try++ {
			fd, err = unix.Openat2(dir, path, &how)
			switch {
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN) && try < tries:
				runtime.Gosched()
			default:
				return err
			}
		}
	})
	if err != nil {
		return -1, r.ended(err)
	}
	return fd, nil
}

// open opens a path inside, for a look (O_PATH).
func (r *Root) open(a *Actor, path string, flags int) (*os.File, error) {
	fd, err := r.reach(a, path, flags, 0)
	if errors.Is(err, unix.ELOOP) {
		err = whichLoop(r.openat2(path, flags, 0)) // a magic link is another error: it leads out of the root
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// reach is the open of open. Root inside goes there without its capabilities where that
// suffices. Otherwise what is on the way has to be looked at: they are for the sandbox's
// own directories and files.
func (r *Root) reach(a *Actor, path string, flags, steps int) (fd int, err error) {
	lowered := a.lowered
	if err := a.lower(); err != nil {
		return -1, err
	}
	fd, err = r.openat2(path, flags, unix.RESOLVE_NO_MAGICLINKS)
	if lowered || !a.powers || err == nil && r.isForeign(fd) {
		return fd, err
	}
	if ferr := a.fresh(); ferr != nil {
		if err == nil {
			_ = unix.Close(fd)
		}
		return -1, ferr
	}
	if !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	fd, again := r.openat2(path, flags, unix.RESOLVE_NO_MAGICLINKS)
	switch {
	case again != nil && r.mayMiss(a, path, steps):
		return -1, again
	case again != nil:
		return -1, err
	case !r.isForeign(fd) && !r.isShut(fd):
		return fd, nil
	}
	_ = unix.Close(fd)
	return -1, errors.Join(err, a.lower())
}

// mayMiss reports whether root inside may know that there is no such path: that there is
// none where the last link leads.
func (r *Root) mayMiss(a *Actor, path string, steps int) bool {
	for ; steps < maxSteps; steps++ {
		dir, name := split(path)
		parent, err := r.reach(a, dir, unix.O_PATH, steps+1)
		if err != nil {
			return !errors.Is(err, unix.EACCES)
		}
		link, found := r.linkIn(parent, name)
		if shut := r.isForeign(parent); shut || !found {
			_ = unix.Close(parent)
			return !shut
		}
		at, err := os.Readlink(fdPath(parent))
		_ = unix.Close(parent)
		if err == nil {
			at, err = r.cut(at)
		}
		if err != nil {
			return false
		}
		path = pathOfLink(at, link)
	}
	return false
}

// maxSteps bounds what mayMiss looks at: names, and links that may change meanwhile.
const maxSteps = 1000

// linkIn reads a link in a directory.
func (r *Root) linkIn(dir int, name string) (text string, ok bool) {
	buf := make([]byte, unix.PathMax)
	n, err := eintr.Get(func() (int, error) { return unix.Readlinkat(dir, name, buf) })
	if err != nil {
		return "", false
	}
	return string(buf[:n]), true
}

// isShut reports whether a file is below a directory that root inside cannot enter.
func (r *Root) isShut(fd int) bool {
	at, err := os.Readlink(fdPath(fd))
	if err == nil {
		at, err = r.cut(at)
	}
	if err != nil {
		return true
	}
	for at != "/" {
		at = filepath.Dir(at)
		dir, err := r.openat2(at, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
		if err != nil {
			return true
		}
		var st unix.Stat_t
		err = eintr.Do(func() error { return unix.Fstat(dir, &st) })
		shut := err != nil || st.Mode&unix.S_IXOTH == 0 && r.isForeign(dir)
		_ = unix.Close(dir)
		if shut {
			return true
		}
	}
	return false
}

// isForeign reports whether a file is none of the sandbox's own.
func (r *Root) isForeign(fd int) bool {
	var st unix.Stat_t
	if eintr.Do(func() error { return unix.Fstat(fd, &st) }) != nil || st.Uid-r.base >= RootIDs || st.Gid-r.base >= RootIDs {
		return true
	}
	pseudo, err := isPseudo(fd)
	return err != nil || pseudo
}

// shift gives the ids of inside to what the system said of a file.
func (r *Root) shift(info fs.FileInfo) {
	// This is where the os package keeps it, so that os.SameFile continues to work.
	if st, ok := info.Sys().(*syscall.Stat_t); ok && r != nil {
		st.Uid, st.Gid = r.inside(st.Uid), r.inside(st.Gid)
	}
}

// cut makes of a path outside the one inside.
func (r *Root) cut(path string) (string, error) {
	top := ""
	err := control(r.dir, func(fd int) (err error) {
		top, err = os.Readlink(fdPath(fd))
		return err
	})
	if err != nil {
		return "", r.ended(err)
	}
	if path == top {
		return "/", nil
	}
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(top, "/")+"/")
	if !ok {
		return "", fmt.Errorf("%.100q: %w", filepath.Base(path), fs.ErrNotExist)
	}
	return "/" + rest, nil
}
