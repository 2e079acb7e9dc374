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

	"github.com/tend-run/tend/internal/eintr"
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

func (r *Root) openat2(path string, flags int, mode uint32, resolve uint64) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode), Resolve: resolve | unix.RESOLVE_IN_ROOT}
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

// open opens a path inside.
func (r *Root) open(a *Actor, path string, flags int, mode uint32) (*os.File, error) {
	if flags&unix.O_CREAT != 0 {
		// Where it will be made is not known before.
		if err := a.lower(); err != nil {
			return nil, err
		}
	}
	fd, err := r.openat2(path, flags, mode, unix.RESOLVE_NO_MAGICLINKS)
	if err == nil && a.powers && !a.lowered && r.isForeign(fd) {
		_ = unix.Close(fd)
		if err = a.lower(); err == nil {
			fd, err = r.openat2(path, flags, mode, unix.RESOLVE_NO_MAGICLINKS)
		}
	}
	if errors.Is(err, unix.ELOOP) && flags&unix.O_NOFOLLOW == 0 {
		err = whichLoop(r.openat2(path, unix.O_PATH, 0, 0)) // a magic link is another error: it leads out of the root
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
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
	// This is where the os package keeps it, so that os.SameFile goes on to work.
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
