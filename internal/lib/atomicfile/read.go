package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrNoFile: something else than a file of the expected size lies at the path.
var ErrNoFile = errors.New("is not a regular file of the size that it should have")

// Open opens a file of the daemon, with mode 0600 if os.O_CREATE creates it. It follows
// no link and never blocks: if it is not a regular file, the error is ErrNoFile.
func Open(path string, flags int) (*os.File, error) {
	return open(path, flags|NoFollow)
}

func open(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		if fi, lerr := os.Lstat(path); lerr == nil && !fi.Mode().IsRegular() && !errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("%s %w", path, ErrNoFile)
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s %w", path, ErrNoFile)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read reads a file of at most limit bytes. It follows a link, because a secret may be
// stored elsewhere. Whatever is at the path, Read never blocks and uses no more memory
// than limit: for a FIFO, a directory or a larger file the error is ErrNoFile.
func Read(path string, limit int64) ([]byte, error) {
	f, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, limit)
}

// ReadAll is Read for a file that is open. The position is behind what was read.
func ReadAll(f *os.File, limit int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s %w", f.Name(), ErrNoFile)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}
