package peer

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// Sizes of sock_diag's messages (linux/inet_diag.h), in bytes.
const (
	diagRequest = unix.SizeofNlMsghdr + 56 // struct inet_diag_req_v2
	diagAnswer  = 72                       // struct inet_diag_msg
)

// asker is the netlink socket over which all questions go: to make one for each
// connection costs more than the question.
var asker struct {
	sync.Mutex
	fd       int // 0: none
	sequence uint32
}

// diag asks for the one socket with these ends. An answer about another one,
// such as a listener on the port, is none.
func diag(e ends) (s socket, err error) {
	asker.Lock()
	defer asker.Unlock()
	if asker.fd == 0 {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
		if err != nil {
			return s, fmt.Errorf("sock_diag: %w", err)
		}
		asker.fd = fd
	}
	asker.sequence++
	var buf [1024]byte
	n, err := ask(asker.fd, diagQuestion(e, asker.sequence), buf[:])
	if err == nil && (n < unix.SizeofNlMsghdr || binary.NativeEndian.Uint32(buf[8:]) != asker.sequence) {
		err = ErrUnknown
	}
	if err != nil {
		// What may still come is the answer to no other question.
		unix.Close(asker.fd)
		asker.fd = 0
		return s, err
	}
	return parseDiag(buf[:n], e)
}

func ask(fd int, question, answer []byte) (int, error) {
	// The kernel answers before sendto returns.
	if err := unix.Sendto(fd, question, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	n, from, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
		return 0, ErrUnknown // not the kernel's word
	}
	return n, nil
}

func diagQuestion(e ends, sequence uint32) []byte {
	b := make([]byte, 0, diagRequest)
	b = binary.NativeEndian.AppendUint32(b, diagRequest)
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, sequence)
	b = binary.NativeEndian.AppendUint32(b, 0) // port: the kernel's
	family := byte(unix.AF_INET)
	if e.local.Addr().Is6() {
		family = unix.AF_INET6
	}
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // all states
	b = binary.BigEndian.AppendUint16(b, e.local.Port())
	b = binary.BigEndian.AppendUint16(b, e.remote.Port())
	for _, a := range []netip.Addr{e.local.Addr(), e.remote.Addr()} {
		var field [16]byte
		copy(field[:], a.AsSlice())
		b = append(b, field[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0)             // any interface
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // no cookie
}

// parseDiag reads the answer about the socket with these ends.
func parseDiag(b []byte, e ends) (s socket, err error) {
	if len(b) < unix.SizeofNlMsghdr {
		return s, ErrUnknown
	}
	kind, body := binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:]
	switch {
	case kind == unix.NLMSG_ERROR && len(body) >= 4:
		if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body))); errno != unix.ENOENT {
			return s, fmt.Errorf("sock_diag: %w", errno)
		}
		return s, ErrUnknown
	case kind != unix.SOCK_DIAG_BY_FAMILY || len(body) < diagAnswer:
		return s, ErrUnknown
	}
	addr := func(at int) (a netip.Addr) {
		if body[0] == unix.AF_INET {
			a, _ = netip.AddrFromSlice(body[at : at+4])
			return a
		}
		a, _ = netip.AddrFromSlice(body[at : at+16])
		return a.Unmap()
	}
	found := ends{
		netip.AddrPortFrom(addr(8), binary.BigEndian.Uint16(body[4:])),
		netip.AddrPortFrom(addr(24), binary.BigEndian.Uint16(body[6:])),
	}
	if found != e {
		return s, ErrUnknown
	}
	return socket{
		state: body[1],
		uid:   int(binary.NativeEndian.Uint32(body[64:])),
		inode: uint64(binary.NativeEndian.Uint32(body[68:])),
	}, nil
}
