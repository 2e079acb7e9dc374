package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/netns"
)

// Space is a network namespace, in which sockets are made: a socket belongs to the one it
// was made in, whichever thread uses it. The zero value and nil are the process's own.
// It keeps the namespace, with what is in it.
type Space struct{ ns *os.File }

// OpenSpace opens a namespace by its file: /proc/PID/ns/net.
func OpenSpace(path string) (*Space, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &Space{f}, nil
}

// Close lets the namespace go.
func (s *Space) Close() error { return s.ns.Close() }

// Do calls f on a thread that is in the namespace (see netns.Do).
func (s *Space) Do(f func() error) error {
	if s == nil || s.ns == nil {
		return f()
	}
	return netns.Do(s.ns, f)
}

// Dial connects to a TCP port. The error is a *net.OpError.
func (s *Space) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	f, err := s.socket(to.Addr(), unix.SOCK_STREAM)
	if err == nil {
		var c net.Conn
		if c, err = connect(ctx, f, to); err == nil {
			return c, nil
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: err}
}

// DialUDP connects a UDP socket.
func (s *Space) DialUDP(to netip.AddrPort) (*net.UDPConn, error) {
	return s.udp(netip.AddrPort{}, to)
}

// udp returns a socket that is bound, also to an address of somebody else, and connected
// where to is valid.
func (s *Space) udp(from, to netip.AddrPort) (*net.UDPConn, error) {
	a := from.Addr()
	if !from.IsValid() {
		a = to.Addr()
	}
	f, err := s.socket(a, unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd := int(f.Fd())
	if from.IsValid() {
		if err := errors.Join(transparent(fd, a), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.Bind(fd, sockaddr(from))); err != nil {
			return nil, err
		}
	}
	if to.IsValid() {
		if err := unix.Connect(fd, sockaddr(to)); err != nil {
			return nil, os.NewSyscallError("connect", err)
		}
	}
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// socket makes one in the namespace, which does not block.
func (s *Space) socket(a netip.Addr, kind int) (*os.File, error) {
	family, fd := unix.AF_INET, -1
	if a.Is6() {
		family = unix.AF_INET6
	}
	err := error(nil)
	if s == nil || s.ns == nil {
		fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		err = os.NewSyscallError("socket", err)
	} else {
		fd, err = netns.Socket(s.ns, family, kind|unix.SOCK_NONBLOCK, 0)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "socket "+strconv.Itoa(fd)), nil
}

// connect takes the socket over.
func connect(ctx context.Context, f *os.File, to netip.AddrPort) (net.Conn, error) {
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var result error
	begun := false
	err = conn.Write(func(fd uintptr) bool { // called again when the socket can be written to
		if !begun {
			begun = true
			result = unix.Connect(int(fd), sockaddr(to))
			return result != unix.EINPROGRESS
		}
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if result = err; err == nil && errno != 0 {
			result = unix.Errno(errno)
		}
		if result != nil {
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return !errors.Is(err, unix.ENOTCONN)
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	case result != nil:
		return nil, os.NewSyscallError("connect", result)
	}
	return net.FileConn(f)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// transparent lets a socket have addresses that are somebody else's.
func transparent(fd int, a netip.Addr) error {
	if a.Is4() {
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1))
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1))
}

// listen returns the two sockets to which all that leaves the sandbox is sent. That of a
// server before this one may still be there.
func (s *Space) listen(at netip.AddrPort) (tcp *net.TCPListener, udp *net.UDPConn, err error) {
	option := func(fd int) error {
		destination := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_RECVORIGDSTADDR, 1)
		if at.Addr().Is6() {
			destination = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR, 1)
			destination = errors.Join(destination, unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1))
		}
		return errors.Join(transparent(fd, at.Addr()), destination,
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	}
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		f, err := s.socket(at.Addr(), kind)
		if err == nil {
			fd := int(f.Fd())
			if err = errors.Join(option(fd), os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at)))); err == nil && kind == unix.SOCK_STREAM {
				if err = os.NewSyscallError("listen", unix.Listen(fd, backlog)); err == nil {
					var l net.Listener
					if l, err = net.FileListener(f); err == nil {
						tcp = l.(*net.TCPListener)
					}
				}
			} else if err == nil {
				var c net.PacketConn
				if c, err = net.FilePacketConn(f); err == nil {
					udp = c.(*net.UDPConn)
				}
			}
			f.Close()
		}
		if err != nil {
			if tcp != nil {
				tcp.Close()
			}
			return nil, nil, fmt.Errorf("listen for what leaves the sandbox: %w", err)
		}
	}
	return tcp, udp, nil
}

// Listen returns a TCP socket that listens in the namespace. That of a server before this
// one may still be there.
func (s *Space) Listen(at netip.AddrPort) (net.Listener, error) {
	f, err := s.socket(at.Addr(), unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd := int(f.Fd())
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at))), os.NewSyscallError("listen", unix.Listen(fd, backlog)))
	if err != nil {
		return nil, err
	}
	return net.FileListener(f)
}

// backlog of connections that nobody has looked at yet.
const backlog = 128

// destination is where a datagram was sent to, from what came beside it.
func destination(oob []byte) (netip.AddrPort, bool) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for i := range msgs {
		sa, err := unix.ParseOrigDstAddr(&msgs[i])
		if err != nil {
			continue
		}
		switch a := sa.(type) {
		case *unix.SockaddrInet4:
			return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), true
		case *unix.SockaddrInet6:
			return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)), true
		}
	}
	return netip.AddrPort{}, false
}

// openFiles is how many descriptors this process may have.
func openFiles() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return l.Cur
}
