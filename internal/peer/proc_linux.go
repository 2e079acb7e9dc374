package peer

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// search finds the socket in the tables of /proc/net. A socket of IPv6 may
// speak IPv4, so both tables are looked at.
func search(e ends) (s socket, err error) {
	for _, path := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(path, "6") {
			continue // a kernel without IPv6
		}
		if err != nil {
			return s, fmt.Errorf("find the user of a connection: %w", err)
		}
		s, err = searchTable(f, e)
		f.Close()
		if !errors.Is(err, ErrUnknown) {
			return s, err
		}
	}
	return s, ErrUnknown
}

// searchTable reads a table: number, local and remote end, state, five more
// columns of which the second is the user, and the inode.
func searchTable(r io.Reader, e ends) (s socket, err error) {
	lines := bufio.NewScanner(r)
	lines.Scan() // the header
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 {
			continue
		}
		local, ok1 := tableEnd(f[1])
		remote, ok2 := tableEnd(f[2])
		if !ok1 || !ok2 || (ends{local, remote}) != e {
			continue
		}
		state, err1 := strconv.ParseUint(f[3], 16, 8)
		uid, err2 := strconv.ParseUint(f[7], 10, 32)
		inode, err3 := strconv.ParseUint(f[9], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return s, fmt.Errorf("find the user of a connection: %w", err)
		}
		return socket{uint8(state), int(uid), inode}, nil
	}
	if err := lines.Err(); err != nil {
		return s, fmt.Errorf("find the user of a connection: %w", err)
	}
	return s, ErrUnknown
}

// tableEnd parses "0100007F:1F90": words of the address in the machine's byte
// order, and the port.
func tableEnd(text string) (ap netip.AddrPort, ok bool) {
	host, port, _ := strings.Cut(text, ":")
	b, err1 := hex.DecodeString(host)
	p, err2 := strconv.ParseUint(port, 16, 16)
	if err1 != nil || err2 != nil || len(b) != 4 && len(b) != 16 {
		return ap, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), ok
}
