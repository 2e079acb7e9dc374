package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// listeners returns the TCP sockets that listen in the network namespace of a process;
// a port other than 0 is the only one that is asked for.
//
// The tables in /proc/net hold the connections too: to make one, the kernel walks through
// its whole table of connections, which is milliseconds of a big machine. So what
// is in our own namespace is asked for by netlink.
func listeners(pid int, ns string, port uint16) []listener {
	if own, err := os.Readlink("/proc/self/ns/net"); err == nil && own == ns {
		if all, err := diag(port); err == nil {
			return all
		}
	}
	var all []listener
	for _, name := range []string{"/net/tcp", "/net/tcp6"} {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + name)
		if err != nil {
			continue // no IPv6, or the process is gone
		}
		for _, l := range parseTCP(b) {
			if port == 0 || l.addr.Port() == port {
				all = append(all, l)
			}
		}
	}
	return all
}

// Of sock_diag's messages (linux/inet_diag.h).
const (
	diagRequest = unix.SizeofNlMsghdr + 56 // struct inet_diag_req_v2
	diagAnswer  = 72                       // struct inet_diag_msg
	diagPort    = 4                        // idiag_sport in it, big-endian
	diagSource  = 8                        // idiag_src
	diagInode   = 68                       // idiag_inode
)

var errDiag = errors.New("sock_diag: not understood")

// diag asks for the sockets that listen in our network namespace.
func diag(port uint16) (all []listener, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	defer unix.Close(fd)
	var buf [16 << 10]byte // the kernel fills no more of one, whatever there is room for
	for sequence, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if err := unix.Sendto(fd, diagQuestion(family, port, uint32(sequence)), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, fmt.Errorf("sock_diag: %w", err)
		}
		for more := true; more; {
			// What there is of the answer is there when sendto has returned, and each
			// recvfrom makes the next part.
			n, from, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT)
			if err != nil {
				return nil, fmt.Errorf("sock_diag: %w", err)
			}
			if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
				return nil, errDiag // not the kernel's word
			}
			if all, more, err = parseDiag(all, buf[:n]); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func diagQuestion(family byte, port uint16, sequence uint32) []byte {
	const listen = 1 << unix.BPF_TCP_LISTEN
	b := make([]byte, 0, diagRequest)
	b = binary.NativeEndian.AppendUint32(b, diagRequest)
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b = binary.NativeEndian.AppendUint32(b, sequence)
	b = binary.NativeEndian.AppendUint32(b, 0) // port: the kernel's
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, listen)
	b = binary.BigEndian.AppendUint16(b, port)
	return append(b, make([]byte, diagRequest-len(b))...) // to anywhere
}

// parseDiag reads a part of an answer; more: there is another part.
func parseDiag(all []listener, b []byte) (_ []listener, more bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		n, kind := int(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return nil, false, errDiag
		}
		switch body := b[unix.SizeofNlMsghdr:n]; {
		case kind == unix.NLMSG_DONE && (len(body) < 4 || int32(binary.NativeEndian.Uint32(body)) >= 0):
			return all, false, nil // with a number below 0, the kernel lacks what answers
		case kind != unix.SOCK_DIAG_BY_FAMILY || len(body) < diagAnswer:
			return nil, false, errDiag
		default:
			size := 4
			if body[0] == unix.AF_INET6 {
				size = 16
			}
			addr, _ := netip.AddrFromSlice(body[diagSource : diagSource+size])
			l := listener{addr: netip.AddrPortFrom(addr, binary.BigEndian.Uint16(body[diagPort:]))}
			if inode := binary.NativeEndian.Uint32(body[diagInode:]); inode != 0 {
				l.inode = strconv.FormatUint(uint64(inode), 10)
				all = append(all, l)
			}
		}
		b = b[min((n+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
	}
	return all, true, nil
}
