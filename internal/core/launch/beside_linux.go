package launch

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A browser takes localhost, and each name below it, for both loopback addresses. Whoever can
// listen on a served port of the other one serves pages of the same origin as the daemon's own:
// they have what the page has stored, and their requests count as the page's. So each port of a
// loopback address is kept on the other one, too, by a socket that is bound and does not listen: a
// connection is refused at once, and the caller tries the other address. It is held where the
// listening sockets are.

// mostPorts is how many ports that the kernel has picked are tried until one is free on both.
const mostPorts = 64

// keepBeside returns the sockets that keep the ports of all on the other loopback address, not
// close-on-exec. Where another program has a port that the kernel has picked for all[i], another
// one is picked.
func keepBeside(listen []string, all []int, held *[]int) (kept []int, err error) {
	for i := 0; i < len(all); i++ {
		other, ok := otherLoopback(all[i])
		if !ok || slices.ContainsFunc(all, func(fd int) bool { a, ok := addrOf(fd); return ok && a == other }) {
			continue
		}
		fd := pick(held, other.String())
		for tries := 0; fd < 0; tries++ {
			fd, err = bind(other)
			switch {
			case err == nil:
			case !errors.Is(err, unix.EADDRINUSE):
				fd = 0 // there is no such address here, and nobody else has it
			case !strings.HasSuffix(listen[i], ":0") || tries == mostPorts:
				return nil, fmt.Errorf("another program holds %s: a browser takes it for localhost, so that program could pose as this daemon there; "+
					"end it, or choose another port with --listen, or serve both: --listen %s --listen %s", other, listen[i], other)
			default:
				unix.Close(all[i])
				if all[i], err = listenAt(listen[i]); err != nil {
					return nil, err
				}
				if other, ok = otherLoopback(all[i]); !ok { // impossible: the host is the same
					return nil, fmt.Errorf("listen on %s: the address is not known", listen[i])
				}
			}
		}
		if fd > 0 {
			kept = append(kept, fd)
		}
	}
	return kept, nil
}

// otherLoopback is the other loopback address with the port of a listening socket. false: it
// listens on neither of them, or there, too.
func otherLoopback(fd int) (other netip.AddrPort, ok bool) {
	a, ok := addrOf(fd)
	switch ip := a.Addr(); {
	case !ok:
	case ip == netip.AddrFrom4([4]byte{127, 0, 0, 1}), ip == netip.IPv4Unspecified():
		return netip.AddrPortFrom(netip.IPv6Loopback(), a.Port()), true
	case ip == netip.IPv6Loopback():
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port()), true
	}
	return other, false
}

// addrOf is the address of a socket of TCP.
func addrOf(fd int) (a netip.AddrPort, ok bool) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return a, false
	}
	return tcpAddr(sa)
}

func tcpAddr(sa unix.Sockaddr) (a netip.AddrPort, ok bool) {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), true
	}
	return a, false
}

// bind makes a socket that has an address and does not listen. It does not share the
// address (SO_REUSEADDR), or another one that does so could have it as well.
func bind(a netip.AddrPort) (int, error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())})
	if a.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, sa); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
