package sockdiag

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"io"
	"iter"
	"net/netip"
	"strconv"
	"strings"
)

// Listen is the state of a socket that listens (TCP_LISTEN).
const Listen = 10

// Socket is what the kernel says of a TCP socket. A socket of IPv6 that speaks IPv4 has
// mapped addresses.
type Socket struct {
	Local, Remote netip.AddrPort
	// State is one of the kernel's TCP states: unix.BPF_TCP_*.
	State uint8
	// UID is the user that made it.
	UID int
	// Inode names it in /proc/PID/fd. 0: its program has closed it, and the UID is not
	// the program's any more.
	Inode uint64
}

// Table reads the text of /proc/net/tcp or tcp6, to its end or an error of r, which comes
// last. Lines that are not understood are passed over: the kernel adds columns, and a
// table that is read while it changes may repeat or miss a line.
func Table(r io.Reader) iter.Seq2[Socket, error] {
	return func(yield func(Socket, error) bool) {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			if s, ok := parseRow(lines.Text()); ok && !yield(s, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Socket{}, err)
		}
	}
}

// parseRow reads a line of a table: number, local and remote end, state, five more columns
// of which the third is the user, and the inode.
func parseRow(row string) (s Socket, ok bool) {
	f := strings.Fields(row)
	if len(f) < 10 {
		return s, false
	}
	state, err1 := strconv.ParseUint(f[3], 16, 8)
	uid, err2 := strconv.ParseUint(f[7], 10, 32)
	inode, err3 := strconv.ParseUint(f[9], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return s, false
	}
	s = Socket{State: uint8(state), UID: int(uid), Inode: inode}
	var ok1, ok2 bool
	s.Local, ok1 = parseEnd(f[1])
	s.Remote, ok2 = parseEnd(f[2])
	return s, ok1 && ok2
}

// parseEnd reads "0100007F:1F90": the address as 32-bit words of the machine's byte
// order, and the port.
func parseEnd(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	b, err := hex.DecodeString(host)
	if err != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(p)), true
}
