package unixsock

import (
	"os"

	"golang.org/x/sys/unix"
)

// Peer returns the pid and the user of the other end. They are those of the process that
// called connect or listen, at that time; of a pair, those of the process that made it.
func Peer(sock int) (pid, uid int, err error) {
	c, err := unix.GetsockoptUcred(sock, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, -1, err
	}
	return int(c.Pid), int(c.Uid), nil
}

// Trusted reports whether the other end is our own user or root.
func Trusted(sock int) bool {
	_, uid, err := Peer(sock)
	return err == nil && (uid == os.Geteuid() || uid == 0)
}
