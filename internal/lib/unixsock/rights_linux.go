package unixsock

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// MaxFDs is the kernel's limit on descriptors in one message (SCM_MAX_FD).
const MaxFDs = 253

// Control makes the buffer in which up to max descriptors of one message arrive.
func Control(max int) []byte { return make([]byte, unix.CmsgLen(4*max)) }

// Send writes one message with up to MaxFDs descriptors. flags may be MSG_DONTWAIT. The
// kernel's errors are returned as they are: EAGAIN from a socket that is full and does not
// wait, EPIPE from one whose other end is closed, EINVAL for too many descriptors. A
// message that a stream takes a part of is an error, too.
func Send(sock int, b []byte, fds []int, flags int) error {
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	n, err := eintr.Get(func() (int, error) { return unix.SendmsgN(sock, b, control, nil, unix.MSG_NOSIGNAL|flags) })
	if err == nil && n < len(b) {
		return fmt.Errorf("message of %d bytes was cut to %d", len(b), n)
	}
	return err
}

// Receive reads one message into b, and its descriptors by way of control, which
// [Control] makes; nil: one for MaxFDs. flags may be MSG_DONTWAIT. The kernel's errors are
// returned as they are. A message with more bytes or descriptors than there is room for is
// an error. n is 0 at the end of the connection.
func Receive(sock int, b, control []byte, flags int) (n int, fds []int, err error) {
	if control == nil {
		control = Control(MaxFDs)
	}
	var used, got int
	err = eintr.Do(func() error {
		n, used, got, _, err = unix.Recvmsg(sock, b, control, unix.MSG_CMSG_CLOEXEC|flags)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	fds, err = Rights(control[:used], got)
	if err != nil {
		return 0, nil, err
	}
	if n == 0 {
		Close(fds) // nobody looks for them in a message that says nothing
		return 0, nil, nil
	}
	return n, fds, nil
}

// Rights takes the descriptors out of the control data that came with a message, and with
// the flags that recvmsg returned. It closes them if data or descriptors are missing.
func Rights(control []byte, flags int) (fds []int, err error) {
	if len(control) > 0 {
		messages, err := unix.ParseSocketControlMessage(control)
		if err != nil {
			return nil, fmt.Errorf("control data of %d bytes: %w", len(control), err)
		}
		for i := range messages {
			if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
				fds = append(fds, got...)
			}
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		Close(fds)
		return nil, fmt.Errorf("message did not fit: it has more bytes than there is room for, or more than %d descriptors", len(fds))
	}
	return fds, nil
}

// Close closes descriptors.
func Close(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
