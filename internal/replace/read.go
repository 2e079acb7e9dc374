package replace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrNoFile: something else than a file of the expected size lies at the path.
var ErrNoFile = errors.New("is not a regular file of the size that it should have")

// Read reads a file of at most limit bytes. Whatever lies at its path, Read
// waits for nobody and takes no more memory than that: a FIFO, a directory or a
// larger file is ErrNoFile.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s %w", path, ErrNoFile)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}
