package network

import (
	"net"

	"golang.org/x/sys/unix"
)

// bytesOf is what the kernel has counted of a connection: what has arrived, and what the other end
// has confirmed. Of one that is closed it is nothing.
func bytesOf(c *net.TCPConn) (received, sent int64) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			received, sent = int64(info.Bytes_received), int64(info.Bytes_acked)
		}
	})
	return received, sent
}
