//go:build unix

package cli

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// resizeSignals come when the size of this terminal has changed.
func resizeSignals() []os.Signal { return []os.Signal{syscall.SIGWINCH} }

// apart makes a program outlive this one's terminal.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// privately makes files that only this user may open, whatever do asks for.
func privately(do func()) {
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	do()
}

// ours: a file belongs to this user.
func ours(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// waits: there is something to read.
func waits(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	_, err := eintr.Get(func() (int, error) { return unix.Poll(fds, 0) })
	return err == nil && fds[0].Revents&unix.POLLIN != 0
}

// secretModes: the mode of a file says who may read it.
const secretModes = true

// canWriteTo reports why no file can be made in a directory.
func canWriteTo(dir string) error { return unix.Access(dir, unix.W_OK) }

// cancelReader reads a file and can be stopped while it waits: a plain read of
// a terminal ends only when a key is typed.
type cancelReader struct {
	file *os.File
	wake *os.File // the reading end of a pipe, closed at the other end by cancel
	stop *os.File
	tty  bool
}

func newCancelReader(f *os.File) (*cancelReader, error) {
	wake, stop, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, tty := terminalOf(f)
	return &cancelReader{file: f, wake: wake, stop: stop, tty: tty}, nil
}

// Read waits for input and reads it. It returns io.EOF at the end of the
// input and os.ErrClosed after cancel.
func (r *cancelReader) Read(b []byte) (int, error) {
	for {
		fds := []unix.PollFd{
			{Fd: int32(r.file.Fd()), Events: unix.POLLIN},
			{Fd: int32(r.wake.Fd()), Events: unix.POLLIN},
		}
		if _, err := eintr.Get(func() (int, error) { return unix.Poll(fds, -1) }); err != nil {
			return 0, err
		}
		if fds[1].Revents != 0 {
			return 0, os.ErrClosed
		}
		if fd := int(r.file.Fd()); r.tty && !inForeground(fd) {
			// A read would stop this program, which its shell has put into the
			// background since.
			fds = fds[1:]
			if n, err := unix.Poll(fds, 200); n > 0 && err == nil {
				return 0, os.ErrClosed
			}
			continue
		}
		return r.file.Read(b)
	}
}

// cancel makes the pending and all later reads fail. The reader must not be
// in use any more when release is called.
func (r *cancelReader) cancel() { r.stop.Close() }

func (r *cancelReader) release() { r.wake.Close() }

// inForeground: the terminal is this program's to read and to set; the shell
// has not put it into the background.
func inForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp() // a terminal that is not ours stops no reader
}

// singleKeys has a terminal hand on each key as it is typed, and show none.
// Signals are as they were. The returned function takes it back.
func singleKeys(fd int) (restore func(), err error) {
	return setTerminal(fd, func(t *unix.Termios) {
		t.Lflag &^= unix.ICANON | unix.ECHO
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	})
}

// endLinesAt has a terminal that hands on whole lines hand on what was typed
// when this key is, too. The returned function takes it back.
func endLinesAt(fd int, key byte) (restore func(), err error) {
	return setTerminal(fd, func(t *unix.Termios) { t.Cc[unix.VEOL] = key })
}

func setTerminal(fd int, change func(*unix.Termios)) (restore func(), err error) {
	was, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	now := *was
	change(&now)
	if err := unix.IoctlSetTermios(fd, setTermios, &now); err != nil {
		return nil, err
	}
	return func() {
		if inForeground(fd) { // else it belongs to another program by now, which has set it
			_ = unix.IoctlSetTermios(fd, setTermios, was) // a terminal that is gone
		}
	}, nil
}

// hungUp waits until the other end of a pipe, socket or terminal is closed,
// and returns true, or until stopped reads end of file.
func hungUp(f, stopped *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}, {Fd: int32(stopped.Fd()), Events: unix.POLLIN}}
	_, err := eintr.Get(func() (int, error) { return unix.Poll(fds, -1) })
	return err == nil && fds[1].Revents == 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// fileIDOf is where a file is, and hasLinks reports whether it has several names.
func fileIDOf(info os.FileInfo) fileID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{uint64(st.Dev), st.Ino}
}

func hasLinks(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}

// ownedByUs reports whether a file belongs to this user, or to root.
func ownedByUs(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}
