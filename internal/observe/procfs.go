package observe

import (
	"strconv"
	"strings"
)

// call is a system call in which a thread is blocked.
type call struct {
	nr   int
	args [6]uint64
}

// parseSyscall reads /proc/PID/task/TID/syscall: "0 0x3 0x7f… …", or "running"
// or "-1 …" when the thread is not blocked in a system call.
func parseSyscall(b []byte) (call, bool) {
	f := strings.Fields(string(b))
	if len(f) < 7 {
		return call{}, false
	}
	nr, err := strconv.Atoi(f[0])
	if err != nil || nr < 0 {
		return call{}, false
	}
	c := call{nr: nr}
	for i := range c.args {
		if c.args[i], err = strconv.ParseUint(f[1+i], 0, 64); err != nil {
			return call{}, false
		}
	}
	return c, true
}

// parseEpoll returns the descriptors that an epoll instance watches for input,
// from /proc/PID/fdinfo/EPFD: lines "tfd:        8 events:       19 data: …",
// with the events in hexadecimal.
func parseEpoll(b []byte) []int {
	const in = 1 // EPOLLIN
	var fds []int
	for row := range strings.Lines(string(b)) {
		f := strings.Fields(row)
		if len(f) < 4 || f[0] != "tfd:" || f[2] != "events:" {
			continue
		}
		fd, err1 := strconv.Atoi(f[1])
		events, err2 := strconv.ParseUint(f[3], 16, 32)
		if err1 == nil && err2 == nil && fd >= 0 && events&in != 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// parseCgroup returns the path in the unified hierarchy from /proc/PID/cgroup,
// whose line is "0::/path"; the others are of version 1.
func parseCgroup(b []byte) string {
	for row := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(row, "\n"), "0::"); ok {
			return path
		}
	}
	return ""
}
