// Package peercred asks the kernel which user is at the other end of a connection
// from this machine: on a unix socket, and on TCP, where both ends are local
// sockets if the address is a loopback one.
//
// The answer is the user that created the socket. If a peer is not found, its user is
// unknown, and the caller must refuse it.
package peercred

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// ErrUnknown: the kernel knows no live local socket at the other end.
var ErrUnknown = errors.New("the kernel knows no socket of this machine at the other end: " +
	"it was closed, or it is in another network namespace, or its address was rewritten on the way")

// UID returns the user at the other end of a connection that was accepted.
func UID(c net.Conn) (int, error) {
	switch c := c.(type) {
	case *net.UnixConn:
		return unixUID(c)
	case *net.TCPConn:
		return tcpUID(c)
	}
	return -1, fmt.Errorf("a connection of the type %T has no user: %w", c, errors.ErrUnsupported)
}

// Member reports whether the process at the other end of a unix socket was in a group when it connected.
// What is not known is not so.
func Member(c net.Conn, gid int) bool {
	u, ok := c.(*net.UnixConn)
	return ok && unixMember(u, gid)
}

// ends are the addresses of a connection as its other end sees them.
type ends struct{ local, remote netip.AddrPort }

func endsOf(c net.Conn) (ends, error) {
	local, ok1 := c.RemoteAddr().(*net.TCPAddr)
	remote, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return ends{}, ErrUnknown
	}
	e := ends{unmapped(local), unmapped(remote)}
	if !e.local.IsValid() || !e.remote.IsValid() || e.local.Addr().Is4() != e.remote.Addr().Is4() {
		return ends{}, ErrUnknown
	}
	return e, nil
}

func unmapped(a *net.TCPAddr) netip.AddrPort {
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}
