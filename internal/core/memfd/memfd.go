//go:build linux

// Package memfd creates the memory files that the roles share, and seals them: a
// program that reopens one of them through /proc/PID/fd cannot perform operations that
// the owners never perform. If a mapped file is truncated, every process that touches
// it dies by SIGBUS; with [FixedSize] nobody can truncate it.
package memfd

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Seals. All include that no other seal comes later.
const (
	// FixedSize: the file neither shrinks nor grows. For mapped files.
	FixedSize = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	// GrowOnly: the file can grow, and written data can be freed by holes.
	GrowOnly = unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	// Constant: nothing of it changes any more.
	Constant = unix.F_SEAL_WRITE | FixedSize
)

// Create makes an empty file in memory, close-on-exec. A kernel that knows no
// seals gives one without.
func Create(name string, flags int) (int, error) {
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == unix.EINVAL && flags&unix.MFD_EXEC != 0 { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags&^unix.MFD_EXEC|unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(name, flags&^unix.MFD_EXEC|unix.MFD_CLOEXEC)
	}
	if err != nil {
		return -1, fmt.Errorf("%s: %w", name, err)
	}
	return fd, nil
}

// Seal seals the file, as far as this kernel supports it. Without seals everything
// works as long as no other program interferes.
func Seal(fd, seals int) {
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
}
