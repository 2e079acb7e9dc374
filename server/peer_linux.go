package server

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID asks the kernel for the user at the other end (SO_PEERCRED: the
// credentials at the time of connect).
func peerUID(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if cerr != nil {
		return -1, cerr
	}
	if err != nil {
		return -1, err
	}
	return int(cred.Uid), nil
}
