package held

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long either side waits for the other, which only computes.
const patience = 5 * time.Second

// dial connects to the holder with a name, and looks whether it is the process pid.
func dial(name string, pid int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			fd = -1
		}
	}()
	if err := limit(fd); err != nil {
		return fd, err
	}
	if err := again(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + name}) }); err != nil {
		return fd, err
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil && int(cred.Pid) != pid {
		err = fmt.Errorf("pid %d answers in place of the process that holds the sockets, which is %d", cred.Pid, pid)
	}
	return fd, err
}

// limit gives a connection the patience of both sides.
func limit(fd int) error {
	t := unix.NsecToTimeval(int64(patience))
	return errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &t))
}

// again repeats a call that a signal has interrupted.
func again(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func send(fd int, message any, fds []int) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	return again(func() error {
		_, err := unix.SendmsgN(fd, b, rights, nil, unix.MSG_NOSIGNAL)
		return err
	})
}

// receive reads a message and its descriptors, which are close-on-exec and the caller's
// also when there is an error.
func receive(fd int, into any) (fds []int, err error) {
	b, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*MaxSockets))
	var n, oobn, flags int
	err = again(func() (err error) {
		n, oobn, flags, _, err = unix.Recvmsg(fd, b, oob, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, err
	}
	if oobn > 0 {
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return nil, err
		}
		for i := range messages {
			if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
				fds = append(fds, got...)
			}
		}
	}
	if n == 0 {
		return fds, errors.New("the other side has closed the connection")
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return fds, fmt.Errorf("a message is longer than %d bytes, or has more than %d descriptors", maxMessage, MaxSockets)
	}
	return fds, json.Unmarshal(b[:n], into)
}

// ask puts a question to a holder.
func ask(name string, pid int, q request) (r reply, fds []int, err error) {
	fd, err := dial(name, pid)
	if err != nil {
		return r, nil, err
	}
	defer unix.Close(fd)
	if err := send(fd, q, nil); err != nil {
		return r, nil, err
	}
	fds, err = receive(fd, &r)
	return r, fds, err
}

// Hold tells the holder with a name, which is the process pid, which sockets there are to
// be. It takes at most a few seconds. The error is a SocketError if one cannot be opened,
// and syscall.ECONNREFUSED if the holder does not listen yet, or any more.
func Hold(name string, pid int, sockets []Socket) error {
	r, fds, err := ask(name, pid, request{Hold: sockets})
	for _, fd := range fds { // none were asked for
		unix.Close(fd)
	}
	if err != nil || r.Errno == 0 {
		return err
	}
	for _, s := range sockets {
		if s.Name == r.Socket {
			return &SocketError{s, r.Errno}
		}
	}
	return r.Errno
}
