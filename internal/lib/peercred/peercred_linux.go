package peercred

import (
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/unixsock"
)

// unixUID asks for the credentials at the time of connect (SO_PEERCRED).
func unixUID(c *net.UnixConn) (uid int, err error) {
	uid = -1
	err = control(c, func(fd int) (err error) {
		_, uid, err = unixsock.Peer(fd)
		return err
	})
	return uid, err
}

func control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	if cerr != nil {
		return cerr
	}
	return err
}

// diagWorks: the kernel has found a socket by sock_diag once, so its "no such
// socket" is about the socket, and not about a part of it that is missing.
var diagWorks atomic.Bool

// tcpUID finds the socket at the other end: by its addresses through netlink,
// else in /proc/net.
func tcpUID(c *net.TCPConn) (int, error) {
	e, err := endsOf(c)
	if err != nil {
		return -1, err
	}
	s, err := ask(e)
	switch {
	case err == nil:
		diagWorks.Store(true)
	case !diagWorks.Load():
		s, err = search(e)
	}
	if err != nil {
		return -1, err
	}
	// A socket without an inode has no owner any more: its program has closed
	// it, and the kernel reports root as the user. One that only tries to
	// connect is not the one that we have accepted.
	if s.Inode == 0 || !established(s.State) {
		return -1, ErrUnknown
	}
	// As long as our own end is connected, no other socket can have connected
	// with the same addresses. So this comes after the search.
	if err := alive(c); err != nil {
		return -1, err
	}
	return s.UID, nil
}

// established: the handshake is over and the socket is not gone. A program that
// has closed only its writing half is still there to read the answer.
func established(state uint8) bool {
	switch state {
	case unix.BPF_TCP_ESTABLISHED, unix.BPF_TCP_FIN_WAIT1, unix.BPF_TCP_FIN_WAIT2, unix.BPF_TCP_CLOSE_WAIT, unix.BPF_TCP_LAST_ACK,
		unix.BPF_TCP_CLOSING:
		return true
	}
	return false
}

func alive(c *net.TCPConn) error {
	return control(c, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return fmt.Errorf("ask for the state of the connection: %w", err)
		}
		if !established(info.State) {
			return ErrUnknown
		}
		return nil
	})
}

// unixMember looks at the groups at the time of connect (SO_PEERCRED, and SO_PEERGROUPS from Linux 4.13 on).
func unixMember(c *net.UnixConn, gid int) bool {
	var groups []uint32
	err := control(c, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return err
		}
		groups = append(groups, cred.Gid)
		more := make([]uint32, 64)
		for {
			size := uint32(len(more) * 4)
			_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
				uintptr(unsafe.Pointer(&more[0])), uintptr(unsafe.Pointer(&size)), 0)
			if errno == unix.ERANGE && int(size) > len(more)*4 { // so many they are
				more = make([]uint32, size/4)
				continue
			}
			if errno == 0 {
				groups = append(groups, more[:size/4]...)
				return nil
			}
			return errno
		}
	})
	return err == nil && slices.Contains(groups, uint32(gid))
}
