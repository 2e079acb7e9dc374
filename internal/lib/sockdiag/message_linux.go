package sockdiag

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Sizes of the messages, in bytes (linux/inet_diag.h).
const (
	sizeQuestion = unix.SizeofNlMsghdr + 56 // struct inet_diag_req_v2
	sizeSocket   = 72                       // struct inet_diag_msg
)

// question is what is asked for.
type question struct {
	family        byte
	dump          bool   // all that match, and not the one with these ends
	states        uint32 // set of states, bit 1 << state
	local, remote netip.AddrPort
}

func (q *question) encode(sequence uint32) []byte {
	flags := uint16(unix.NLM_F_REQUEST)
	if q.dump {
		flags |= unix.NLM_F_DUMP
	}
	b := make([]byte, 0, sizeQuestion)
	b = binary.NativeEndian.AppendUint32(b, sizeQuestion)
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, sequence)
	b = binary.NativeEndian.AppendUint32(b, 0) // port: the kernel's
	b = append(b, q.family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, q.states)
	b = binary.BigEndian.AppendUint16(b, q.local.Port())
	b = binary.BigEndian.AppendUint16(b, q.remote.Port())
	for _, a := range []netip.Addr{q.local.Addr(), q.remote.Addr()} {
		var field [16]byte
		copy(field[:], a.AsSlice())
		b = append(b, field[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0)             // any interface
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // no cookie
}

// cut takes the first message off a datagram of an answer.
func cut(b []byte, sequence uint32) (kind uint16, body, rest []byte, err error) {
	if len(b) < unix.SizeofNlMsghdr {
		return 0, nil, nil, errPart
	}
	n := int(binary.NativeEndian.Uint32(b))
	if n < unix.SizeofNlMsghdr || n > len(b) || binary.NativeEndian.Uint32(b[8:]) != sequence {
		return 0, nil, nil, errPart
	}
	kind, body = binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:n]
	rest = b[min((n+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
	return kind, body, rest, nil
}

// parseOne reads the answer about the socket with these ends.
func parseOne(b []byte, sequence uint32, local, remote netip.AddrPort) (Socket, error) {
	kind, body, _, err := cut(b, sequence)
	if err != nil {
		return Socket{}, err
	}
	if errno, ok := errnoOf(body); ok && kind == unix.NLMSG_ERROR {
		if errno == unix.ENOENT {
			return Socket{}, ErrNone
		}
		return Socket{}, fmt.Errorf("sock_diag: %w", errno)
	}
	s, ok := parseSocket(body)
	if !ok || kind != unix.SOCK_DIAG_BY_FAMILY {
		return Socket{}, errPart
	}
	// A socket of IPv6 that speaks IPv4 is found by addresses of IPv4.
	if unmapped(s.Local) != local || unmapped(s.Remote) != remote {
		return Socket{}, ErrNone
	}
	return s, nil
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// parsePart adds the sockets in a datagram of the answer about all; more: it is not the
// last one.
func parsePart(all []Socket, b []byte, sequence uint32) (_ []Socket, more bool, err error) {
	for len(b) > 0 {
		kind, body, rest, err := cut(b, sequence)
		if err != nil {
			return nil, false, err
		}
		if kind == unix.NLMSG_DONE {
			if errno, ok := errnoOf(body); ok { // the kernel lacks what answers
				return nil, false, fmt.Errorf("sock_diag: %w", errno)
			}
			return all, false, nil
		}
		if errno, ok := errnoOf(body); ok && kind == unix.NLMSG_ERROR {
			return nil, false, fmt.Errorf("sock_diag: %w", errno)
		}
		s, ok := parseSocket(body)
		if !ok || kind != unix.SOCK_DIAG_BY_FAMILY {
			return nil, false, errPart
		}
		if s.Inode != 0 {
			all = append(all, s)
		}
		b = rest
	}
	return all, true, nil
}

// errnoOf reads the number that an error or the end of an answer begins with; false: there
// is none, or it is no error.
func errnoOf(body []byte) (unix.Errno, bool) {
	if len(body) < 4 {
		return 0, false
	}
	n := int32(binary.NativeEndian.Uint32(body))
	return unix.Errno(-int64(n)), n < 0
}

// parseSocket reads the body of a message about a socket.
func parseSocket(body []byte) (s Socket, ok bool) {
	if len(body) < sizeSocket {
		return s, false
	}
	size := 16
	switch body[0] {
	case unix.AF_INET:
		size = 4
	case unix.AF_INET6:
	default:
		return s, false
	}
	end := func(port, addr int) netip.AddrPort {
		a, _ := netip.AddrFromSlice(body[addr : addr+size])
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(body[port:]))
	}
	return Socket{
		Local:  end(4, 8),
		Remote: end(6, 24),
		State:  body[1],
		UID:    int(binary.NativeEndian.Uint32(body[64:])),
		Inode:  uint64(binary.NativeEndian.Uint32(body[68:])),
	}, true
}
