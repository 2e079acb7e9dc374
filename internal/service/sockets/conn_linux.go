package sockets

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/unixsock"
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
	if err := eintr.Do(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + name}) }); err != nil {
		return fd, err
	}
	who, _, err := unixsock.Peer(fd)
	if err == nil && who != pid {
		err = fmt.Errorf("pid %d answers in place of the process that holds the sockets, which is %d", who, pid)
	}
	return fd, err
}

// limit gives a connection the patience of both sides.
func limit(fd int) error {
	t := unix.NsecToTimeval(int64(patience))
	return errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t), unix.SetsockoptTimeval(fd,
		unix.SOL_SOCKET, unix.SO_SNDTIMEO, &t))
}

func send(fd int, message any, fds []int) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return unixsock.Send(fd, b, fds, 0)
}

// receive reads a message and its descriptors. With an error there are none.
func receive(fd int, into any) ([]int, error) {
	b := make([]byte, maxMessage)
	n, fds, err := unixsock.Receive(fd, b, unixsock.Control(MaxSockets), 0)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("the other side has closed the connection")
	}
	if err := json.Unmarshal(b[:n], into); err != nil {
		unixsock.Close(fds)
		return nil, err
	}
	return fds, nil
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

// Hold tells the holder with a name, whose process is pid, which sockets to hold. It
// takes at most a few seconds. The error is a SocketError if one cannot be opened, and
// syscall.ECONNREFUSED if the holder does not listen yet, or any more.
func Hold(name string, pid int, sockets []Socket) error {
	r, fds, err := ask(name, pid, request{Hold: sockets})
	unixsock.Close(fds) // none were asked for
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
