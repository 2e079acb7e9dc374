package sockdiag

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/netns"
)

// ErrNone: the kernel knows no socket with these ends.
var ErrNone = errors.New("sock_diag: there is no such socket")

// errPart: an answer is not the kernel's, not about the question, or not whole.
var errPart = errors.New("sock_diag: the answer is not understood")

// Conn is a connection to the kernel. It serves one goroutine at a time. After an error
// other than ErrNone it is of no use: what may still come is the answer to no other
// question.
type Conn struct {
	fd       int
	sequence uint32 // of the last question
}

// Open makes a connection. It asks about the network namespace of the thread that calls.
func Open() (*Conn, error) {
	return opened(unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG))
}

func opened(fd int, err error) (*Conn, error) {
	if err != nil {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	return &Conn{fd: fd}, nil
}

// OpenIn makes a connection that asks about another network namespace, by the path of its
// file: /proc/PID/ns/net. It takes CAP_SYS_ADMIN, there and here, or the namespace is one of a
// sandbox of an ordinary user, and this process that user's.
func OpenIn(path string) (*Conn, error) {
	ns, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return opened(netns.Socket(ns, unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_SOCK_DIAG))
}

// Close closes the connection.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// Find asks for the socket with these ends, which are of one family. The error is
// ErrNone also if the answer is about another socket, such as a listener on the port.
func (c *Conn) Find(local, remote netip.AddrPort) (Socket, error) {
	if err := c.ask(question{family: familyOf(local.Addr()), states: ^uint32(0), local: local, remote: remote}); err != nil {
		return Socket{}, err
	}
	var buf [1024]byte // one message, of 88 bytes and a few attributes
	b, err := c.receive(buf[:])
	if err != nil {
		return Socket{}, err
	}
	return parseOne(b, c.sequence, local, remote)
}

// Listening asks for all sockets that listen, on a port if it is not 0. Those that their
// programs have closed are left out.
func (c *Conn) Listening(port uint16) (all []Socket, err error) {
	var buf [16 << 10]byte // the kernel fills no more of one, whatever there is room for
	for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		err := c.ask(question{family: familyOf(any), dump: true, states: 1 << Listen,
			local: netip.AddrPortFrom(any, port), remote: netip.AddrPortFrom(any, 0)})
		if err != nil {
			return nil, err
		}
		for more := true; more; {
			b, err := c.receive(buf[:])
			if err != nil {
				return nil, err
			}
			if all, more, err = parsePart(all, b, c.sequence); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func familyOf(a netip.Addr) byte {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// ask sends a question.
func (c *Conn) ask(q question) error {
	c.sequence++
	if err := eintr.Do(func() error {
		return unix.Sendto(c.fd, q.encode(c.sequence), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}); err != nil {
		return fmt.Errorf("sock_diag: %w", err)
	}
	return nil
}

// receive reads a datagram of the answer. What there is of it is there when sendto has
// returned, and each recvfrom makes the next part: nothing here waits.
func (c *Conn) receive(buf []byte) ([]byte, error) {
	n, from, err := unix.Recvfrom(c.fd, buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
	if err != nil {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 || n > len(buf) {
		return nil, errPart
	}
	return buf[:n], nil
}
