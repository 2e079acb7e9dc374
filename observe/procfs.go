package observe

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// listener is a socket in state LISTEN of /proc/net/tcp or tcp6.
type listener struct {
	addr  netip.AddrPort
	inode string
}

// parseTCP returns the listening sockets of /proc/net/tcp or tcp6. Lines that
// are not understood are passed over: the kernel adds columns, and a table
// that is read while it changes may repeat or miss a line.
func parseTCP(b []byte) []listener {
	const listen = "0A" // TCP_LISTEN
	var out []listener
	for row := range strings.Lines(string(b)) {
		f := strings.Fields(row)
		if len(f) < 10 || f[3] != listen {
			continue
		}
		addr, ok := parseHexAddr(f[1])
		if !ok || f[9] == "0" {
			continue
		}
		out = append(out, listener{addr: addr, inode: f[9]})
	}
	return out
}

// parseHexAddr reads "0100007F:1F90": the address as 32-bit words of the
// machine's byte order, the port as a number.
func parseHexAddr(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	if !ok {
		return netip.AddrPort{}, false
	}
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	a, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a, uint16(p)), true
}

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
