package observe

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// This file reads the texts of /proc. It is pure: proc(5) gives the formats.

// stat is what is used of /proc/PID/stat.
type stat struct {
	pid, ppid, session int
	state              byte
	tty                uint64 // device number of the controlling terminal, 0 without one
}

// parseStat reads /proc/PID/stat. The name in parentheses may itself hold
// parentheses, spaces and newlines, so the fields count from the last ')'.
func parseStat(text string) (stat, bool) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return stat{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(text[:open]))
	f := strings.Fields(text[end+1:]) // state ppid pgrp session tty_nr …
	if err != nil || len(f) < 5 || len(f[0]) != 1 {
		return stat{}, false
	}
	s := stat{pid: pid, state: f[0][0]}
	var errs [3]error
	s.ppid, errs[0] = strconv.Atoi(f[1])
	s.session, errs[1] = strconv.Atoi(f[3])
	var tty int64 // tty_nr is printed as a signed int
	tty, errs[2] = strconv.ParseInt(f[4], 10, 64)
	s.tty = uint64(uint32(tty))
	return s, errs == [3]error{}
}

// socket is one listening socket of /proc/PID/net/tcp or tcp6.
type socket struct {
	addr  netip.AddrPort
	inode uint64
}

const stateListen = "0A" // TCP_LISTEN in the kernel's numbers

// parseSockets returns the sockets that listen on port.
//
//	sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …
//	0: 0100007F:1F90 00000000:0000 0A …
func parseSockets(text string, port int) []socket {
	var out []socket
	for row := range strings.Lines(text) {
		f := strings.Fields(row)
		if len(f) < 10 || f[3] != stateListen {
			continue
		}
		addr, ok := parseAddr(f[1])
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if ok && err == nil && int(addr.Port()) == port {
			out = append(out, socket{addr, inode})
		}
	}
	return out
}

// parseAddr reads "0100007F:1F90": the address as 32-bit words in the byte
// order of the machine, the port as a number.
func parseAddr(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	p, err := strconv.ParseUint(port, 16, 16)
	b, err2 := hex.DecodeString(host)
	if !ok || err != nil || err2 != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), true
}

// syscall is the system call that a thread is blocked in.
type syscallState struct {
	nr   int64
	args [6]uint64
}

// parseSyscall reads /proc/PID/task/TID/syscall: "running", "-1 SP PC" outside
// of a system call, or the number, six arguments, SP and PC.
func parseSyscall(text string) (syscallState, bool) {
	f := strings.Fields(text)
	if len(f) != 9 {
		return syscallState{}, false
	}
	var s syscallState
	var err error
	if s.nr, err = strconv.ParseInt(f[0], 10, 64); err != nil || s.nr < 0 {
		return syscallState{}, false
	}
	for i := range s.args {
		if s.args[i], err = strconv.ParseUint(strings.TrimPrefix(f[i+1], "0x"), 16, 64); err != nil {
			return syscallState{}, false
		}
	}
	return s, true
}

const epollIn = 1 // EPOLLIN

// parseEpoll returns the descriptors that an epoll instance watches for input,
// from /proc/PID/fdinfo/FD:
//
//	tfd:        0 events: 19 data: 0 pos:0 ino:3 sdev:1c
func parseEpoll(text string) []int {
	var out []int
	for row := range strings.Lines(text) {
		f := strings.Fields(row)
		if len(f) < 4 || f[0] != "tfd:" || f[2] != "events:" {
			continue
		}
		fd, err := strconv.Atoi(f[1])
		events, err2 := strconv.ParseUint(f[3], 16, 64)
		if err == nil && err2 == nil && fd >= 0 && events&epollIn != 0 {
			out = append(out, fd)
		}
	}
	return out
}

// parseCgroup returns the path of the unified hierarchy in /proc/PID/cgroup,
// whose line begins with "0::".
func parseCgroup(text string) (string, bool) {
	for row := range strings.Lines(text) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(row, "\n"), "0::"); ok {
			return p, p != ""
		}
	}
	return "", false
}

// parseSocketLink reads "socket:[12345]", the link of /proc/PID/fd/N.
func parseSocketLink(link string) (inode uint64, ok bool) {
	n, err := fmt.Sscanf(link, "socket:[%d]", &inode)
	return inode, n == 1 && err == nil
}
