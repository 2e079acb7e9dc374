//go:build unix

package atomicfile

import (
	"context"
	"os"
	"syscall"
	"time"
)

// Lock waits until no other process, and no other caller in this one, holds the lock of
// the file at path, which is created and stays. The lock ends with the process. Only
// the holder may remove the file; a waiting caller then locks the next one that is
// created.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && isAt(f, path) {
			return func() { f.Close() }, nil
		}
		if err == nil {
			f.Close()
			if f, err = Open(path, os.O_RDWR|os.O_CREATE); err != nil {
				return nil, err
			}
			continue
		}
		if err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			f.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			f.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: ctx.Err()}
		}
	}
}

// isAt reports whether an open file is the one at a path.
func isAt(f *os.File, path string) bool {
	a, err := f.Stat()
	b, lerr := os.Lstat(path)
	return err == nil && lerr == nil && os.SameFile(a, b)
}
