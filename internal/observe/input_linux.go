package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

// Input reports whether the tree of the leader waits for input: whether one of
// its threads is blocked reading the leader's stdin pipe or its terminal.
// Errors: process.ErrPermission when tend may not trace the leader,
// process.ErrUnsupported when the kernel does not show system calls.
func Input(leader, session int) (process.InputState, error) {
	pids, stats := tree(leader, session)
	s, ok := stats[leader]
	if !ok || s.Dead() {
		return process.InputNone, nil
	}
	if err := traceable(leader); err != nil {
		return process.InputNone, err
	}
	src := source{leader: leader, tty: uint32(s.TTY)}
	var st unix.Stat_t
	if unix.Stat(fdPath(leader, 0), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		src.pipe, src.dev = st.Ino, st.Dev
	}
	best := process.InputNone
	for _, pid := range pids {
		tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		if err != nil {
			continue
		}
		src.sameTTY = src.tty != 0 && uint32(stats[pid].TTY) == src.tty
		for _, task := range tasks {
			b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + task.Name() + "/syscall")
			if err != nil {
				continue
			}
			if c, ok := parseSyscall(b); ok {
				best = max(best, src.blocked(pid, &c))
			}
		}
	}
	return best, nil
}

// traceable reports why the leader's system calls can't be read.
func traceable(pid int) error {
	_, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/syscall")
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: the system calls of pid %d can't be read; the same user or CAP_SYS_PTRACE is needed", process.ErrPermission, pid)
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err == nil {
			return fmt.Errorf("%w: the kernel has no /proc/PID/syscall", process.ErrUnsupported)
		}
	}
	return nil
}

// source is where the leader's input comes from.
type source struct {
	leader    int
	pipe, dev uint64 // inode and device of the stdin pipe, 0 without one
	tty       uint32 // the controlling terminal as /proc/PID/stat tells it, 0 without one
	sameTTY   bool   // the process looked at has this terminal
}

// blocked judges one system call of a process.
func (s *source) blocked(pid int, c *call) process.InputState {
	switch c.nr {
	case unix.SYS_READ, unix.SYS_READV:
		fd := int(int32(c.args[0]))
		switch pipe, tty := s.is(pid, fd); {
		case pipe:
			return process.InputCertain
		case tty && s.asksSecret(pid):
			return process.InputPassword
		case tty:
			return process.InputCertain
		}
		return process.InputNone
	}
	var fds []int
	switch {
	case isEpoll(c.nr):
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/fdinfo/" + strconv.Itoa(int(int32(c.args[0]))))
		if err == nil {
			fds = parseEpoll(b)
		}
	case isPoll(c.nr):
		fds = pollSet(pid, c)
	case isSelect(c.nr):
		fds = selectSet(pid, c)
	}
	for _, fd := range fds {
		if pipe, tty := s.is(pid, fd); pipe || tty {
			return process.InputLikely
		}
	}
	return process.InputNone
}

// is reports whether a descriptor of a process is the source.
func (s *source) is(pid, fd int) (pipe, tty bool) {
	var st unix.Stat_t
	if fd < 0 || unix.Stat(fdPath(pid, fd), &st) != nil {
		return false, false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return s.pipe != 0 && st.Ino == s.pipe && st.Dev == s.dev, false
	case unix.S_IFCHR:
		const devTTY = 5 << 8 // /dev/tty: the process's controlling terminal
		dev := ttyNumber(st.Rdev)
		return false, s.tty != 0 && (dev == s.tty || dev == devTTY && s.sameTTY)
	}
	return false, false
}

// asksSecret: the terminal is in canonical mode and does not echo.
func (s *source) asksSecret(pid int) bool {
	for _, holder := range []int{pid, s.leader} {
		for fd := range 3 {
			var st unix.Stat_t
			path := fdPath(holder, fd)
			// /dev/tty opened by us would be our own terminal, hence the
			// search for the real one.
			if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || ttyNumber(st.Rdev) != s.tty {
				continue
			}
			f, err := unix.Open(path, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			t, err := unix.IoctlGetTermios(f, unix.TCGETS)
			unix.Close(f)
			if err == nil {
				return t.Lflag&unix.ECHO == 0 && t.Lflag&unix.ICANON != 0
			}
		}
	}
	return false
}

// ttyNumber encodes a device as the tty field of /proc/PID/stat does: minor
// bits 0-7, major 8-19, the other bits of the minor 20-31.
func ttyNumber(dev uint64) uint32 {
	major, minor := unix.Major(dev), unix.Minor(dev)
	return minor&0xff | major<<8 | minor&^0xff<<12
}

func fdPath(pid, fd int) string { return "/proc/" + strconv.Itoa(pid) + "/fd/" + strconv.Itoa(fd) }

// maxPolled bounds how many descriptors of a poll or select are looked at.
const maxPolled = 1024

// pollSet reads the struct pollfd array of a blocked poll or ppoll: int fd,
// short events, short revents.
func pollSet(pid int, c *call) []int {
	b := memory(pid, c.args[0], 8*int(min(c.args[1], maxPolled)))
	var fds []int
	for ; len(b) >= 8; b = b[8:] {
		if binary.NativeEndian.Uint16(b[4:])&unix.POLLIN != 0 {
			fds = append(fds, int(int32(binary.NativeEndian.Uint32(b))))
		}
	}
	return fds
}

// selectSet reads the set of descriptors to read from of a blocked select or
// pselect6: a bit for each, in words of the machine.
func selectSet(pid int, c *call) []int {
	n := int(min(c.args[0], maxPolled))
	if c.args[1] == 0 {
		return nil
	}
	b := memory(pid, c.args[1], (n+63)/64*8)
	var fds []int
	for fd := 0; fd < n && fd/64*8+8 <= len(b); fd++ {
		if binary.NativeEndian.Uint64(b[fd/64*8:])>>(fd%64)&1 != 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// memory reads a little of another process's memory, or nil.
func memory(pid int, at uint64, n int) []byte {
	if n == 0 || int64(at) <= 0 {
		return nil
	}
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/mem")
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, n)
	n, _ = f.ReadAt(b, int64(at))
	return b[:n]
}
