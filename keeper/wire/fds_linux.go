package wire

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// MaxFDs is the kernel's limit on descriptors in one message.
const MaxFDs = 253

// Send writes one message with descriptors to a socket that blocks or not; it
// does not wait when the socket is full (EAGAIN).
func Send(sock int, b []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		n, err := unix.SendmsgN(sock, b, oob, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n < len(b) {
			return fmt.Errorf("message of %d bytes was cut to %d", len(b), n)
		}
		return err
	}
}

// Recv reads one message and its descriptors, which are close-on-exec and the
// caller's. flag may be MSG_DONTWAIT. A message with more bytes or descriptors than fit is an error.
func Recv(sock int, b []byte, flag int) (n int, fds []int, err error) {
	return RecvInto(sock, b, make([]byte, RightsSize), flag)
}

// RightsSize is the size of the buffer for the descriptors of one message.
var RightsSize = unix.CmsgSpace(MaxFDs * 4)

// RecvInto is Recv with the caller's buffer for the descriptors, of RightsSize.
func RecvInto(sock int, b, oob []byte, flag int) (n int, fds []int, err error) {
	var oobn, flags int
	for {
		n, oobn, flags, _, err = unix.Recvmsg(sock, b, oob, unix.MSG_CMSG_CLOEXEC|flag)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, nil, err
	}
	if oobn > 0 {
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return 0, nil, err
		}
		for i := range msgs {
			if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
				fds = append(fds, got...)
			}
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return 0, nil, fmt.Errorf("message did not fit (%d bytes, %d descriptors)", n, len(fds))
	}
	return n, fds, nil
}
