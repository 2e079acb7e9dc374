//go:build linux

package rundir

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/process"
)

// maxFile bounds a small file in bytes. The longest is a command line, which the
// kernel bounds.
const maxFile = 4 << 20

// ReadFile reads a small file. Whatever is at its path, it never blocks and uses no
// more memory than such a file needs: if it is not a regular file, or too large, the
// error is process.ErrDamaged.
func (d *Dir) ReadFile(name string) ([]byte, error) { return ReadFile(d.Path(name), maxFile) }

// ReadFile is [Dir.ReadFile] for any file of the roles' own.
func ReadFile(path string, limit int) ([]byte, error) {
	f, err := spool.Open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if len(b) > limit {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", process.ErrDamaged, path, limit)
	}
	return b, err
}

// WriteFile replaces a small file as a whole.
func (d *Dir) WriteFile(name string, b []byte) error { return WriteFile(d.Path(name), b) }

// WriteFile is [Dir.WriteFile] for any file of the roles' own.
func WriteFile(path string, b []byte) error {
	tmp := path + ".new"
	f, err := OpenFile(tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// OpenFile opens a file that the roles write, and creates it with O_CREAT. It follows
// no link and never blocks: anything at the path that is not a regular file is removed
// first, if possible.
func OpenFile(path string, flags int) (*os.File, error) {
	f, err := spool.Open(path, flags)
	if errors.Is(err, process.ErrDamaged) && os.Remove(path) == nil {
		return spool.Open(path, flags)
	}
	return f, err
}
