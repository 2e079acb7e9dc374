package exchange

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// swapDirs is Dirs in open directories.
func swapDirs(one *os.File, a string, two *os.File, b string) error {
	err := unix.Renameat2(int(one.Fd()), a, int(two.Fd()), b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return errors.ErrUnsupported
	}
	if err != nil {
		return &os.PathError{Op: "exchange", Path: b, Err: err}
	}
	return nil
}

// swap is File in an open directory; done: the file system can do it.
func swap(dir *os.File, fresh, name string, is func(old *os.File) bool) (done bool, err error) {
	at := int(dir.Fd())
	flag := uint(unix.RENAME_EXCHANGE)
	if is == nil {
		flag = unix.RENAME_NOREPLACE
	}
	switch err := unix.Renameat2(at, fresh, at, name, flag); {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS):
		return false, nil
	case errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT):
		return true, ErrChanged
	case err != nil:
		return true, &os.PathError{Op: "exchange", Path: name, Err: err}
	case is == nil:
		return true, nil
	}
	if !expected(at, fresh, is) {
		return true, errors.Join(ErrChanged, unix.Renameat2(at, fresh, at, name, unix.RENAME_EXCHANGE))
	}
	return true, unix.Unlinkat(at, fresh, 0)
}

// remove is Remove in an open directory.
func remove(dir *os.File, aside, name string, is func(old *os.File) bool) (done bool, err error) {
	at := int(dir.Fd())
	switch err := unix.Renameat2(at, name, at, aside, unix.RENAME_NOREPLACE); {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS):
		return false, nil
	case errors.Is(err, unix.ENOENT):
		return true, ErrChanged
	case err != nil:
		return true, &os.PathError{Op: "remove", Path: name, Err: err}
	}
	if !expected(at, aside, is) {
		err = ErrChanged
		if back := unix.Renameat2(at, aside, at, name, unix.RENAME_NOREPLACE); !errors.Is(back, unix.EEXIST) { // else it was saved once more
			return true, errors.Join(err, back)
		}
	}
	return true, errors.Join(err, unix.Unlinkat(at, aside, 0))
}

// expected reports whether a file is as it should be, and nobody can write into it any more.
func expected(at int, name string, is func(old *os.File) bool) bool {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, unix.EACCES) // nobody but its owner can say more
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return false
	}
	// A lease is refused while anybody has it open for writing; some file systems have none.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); errors.Is(err, unix.EAGAIN) {
		return false
	}
	return is(f)
}
