package spool

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// OpenFile opens a file of the spool; with O_CREAT it makes the file with mode 0600.
// It follows no link and does not block. It returns process.ErrDamaged if the path
// is not a regular file, if the file belongs neither to this user nor to the owner
// of its directory, or if it may not be opened. Other errors are the kernel's
// numbers.
func OpenFile(path string, flags int) (int, error) {
	fd, err := eintr.Get(func() (int, error) {
		return unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	})
	switch err {
	case nil:
	case unix.ELOOP, unix.EISDIR, unix.ENXIO, unix.ENODEV, unix.EACCES, unix.EPERM:
		what := "cannot be opened: " + err.Error()
		if fi, lerr := os.Lstat(path); lerr == nil && !fi.Mode().IsRegular() {
			what = kindOf(fi.Mode())
		}
		return -1, broken(path, what)
	default:
		return -1, err
	}
	if err := check(fd, path); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Open is OpenFile for a file of package os, and with its errors.
func Open(path string, flags int) (*os.File, error) {
	fd, err := OpenFile(path, flags)
	if no, ok := err.(unix.Errno); ok {
		err = &os.PathError{Op: "open", Path: path, Err: no}
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// open opens a file of a process's directory.
func open(dir, name string, flags int) (*os.File, error) {
	return Open(filepath.Join(dir, name), flags)
}

// check returns process.ErrDamaged for what is not a regular file of ours.
func check(fd int, path string) error {
	var st, parent unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		what := "is no regular file"
		if fi, err := os.Lstat(path); err == nil {
			what = kindOf(fi.Mode())
		}
		return broken(path, what)
	}
	if st.Uid != uint32(os.Geteuid()) {
		// Some filesystems give all files to somebody else.
		if unix.Stat(filepath.Dir(path), &parent) != nil || parent.Uid != st.Uid {
			return broken(path, "belongs to somebody else")
		}
	}
	return nil
}

// nextData is where data follows at or after an offset, skipping holes; the
// offset where that is not known, and size where nothing does.
func nextData(f *os.File, at, size int64) int64 {
	next, err := f.Seek(at, unix.SEEK_DATA)
	switch {
	case err == nil:
		return min(next, size)
	case errors.Is(err, unix.ENXIO):
		return size
	}
	return at
}

// isFull reports whether an error says that the filesystem is full.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// DiskUsage returns the disk space of a process's directory, in bytes.
func DiskUsage(dir string) (n int64) {
	for _, name := range append([]string{""}, fileNames...) {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(dir, name), &st) == nil {
			n += st.Blocks * 512
		}
	}
	return n
}
