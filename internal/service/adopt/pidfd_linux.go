package adopt

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// openPID opens a process by its pid. Errors: process.ErrExited if there is none,
// process.ErrUnavailable where it may be tried again, process.ErrUnsupported.
func openPID(pid int) (fd int, err error) {
	fd, err = unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // a thread has the number now
		return -1, process.ErrExited
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return -1, fmt.Errorf("%w: this kernel does not open processes (pidfd_open: %v), which Linux 5.3 does", process.ErrUnsupported, err)
	}
	return -1, fmt.Errorf("pidfd_open %d: %w: %w", pid, err, process.ErrUnavailable)
}

// open opens a member, and makes sure that it is the one that was seen. Errors: as openPID.
func (m member) open() (fd int, err error) {
	if fd, err = openPID(m.pid); err != nil {
		return -1, err
	}
	s, ok := procfs.ReadStat(m.pid)
	switch {
	case ok && s.Start == m.start && !pidfd.Ended(fd, 0):
		return fd, nil
	case ok, pidfd.Ended(fd, 0), errors.Is(unix.PidfdSendSignal(fd, 0, nil, 0), unix.ESRCH):
		err = process.ErrExited
	default: // there was no descriptor to look with
		err = fmt.Errorf("/proc/%d/stat cannot be read: %w", m.pid, process.ErrUnavailable)
	}
	unix.Close(fd)
	return -1, err
}

// signal sends a signal. Errors: those of open, process.ErrPermission.
func (m member) signal(sig unix.Signal) error {
	fd, err := m.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	switch err := unix.PidfdSendSignal(fd, sig, nil, 0); {
	case errors.Is(err, unix.ESRCH):
		return process.ErrExited
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("pid %d: %w", m.pid, process.ErrPermission)
	case err != nil:
		return fmt.Errorf("signal %d to pid %d: %w", sig, m.pid, err)
	}
	return nil
}
