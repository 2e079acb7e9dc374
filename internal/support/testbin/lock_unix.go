//go:build unix

package testbin

import (
	"os"
	"syscall"
)

// lockFile waits until nobody else has the file locked, and locks it.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
