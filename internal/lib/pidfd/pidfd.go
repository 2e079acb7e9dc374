//go:build linux

// Package pidfd is about processes that are open (pidfd_open(2)): what is done to one of them is not done
// to a later process with the same number.
package pidfd

import (
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// Ended reports whether the process has ended, with all its threads; it may be a zombie still. It waits so
// many milliseconds for that, -1: without end.
func Ended(fd, wait int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := eintr.Get(func() (int, error) { return unix.Poll(fds, wait) })
	return err == nil && n > 0
}

// Signal sends a signal to a process that is, once it is open, still the one that is meant: its number may
// be another's by then. It reports whether the signal was sent.
func Signal(pid int, sig unix.Signal, still func() bool) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return still() && unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}
