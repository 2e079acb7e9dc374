//go:build unix

package work

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/replace"
)

// lock waits until no other worker has the file. The lock ends with the process.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := replace.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			f.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		if !wait(ctx, 100*time.Millisecond) {
			f.Close()
			return nil, ctx.Err()
		}
	}
}
