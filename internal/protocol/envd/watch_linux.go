package envd

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// poller waits for the peers' hang-ups in an epoll set of its own, apart from
// the runtime's, which does not report a hang-up without a read.
type poller struct {
	epoll int
	wake  int // eventfd
}

const (
	wakeToken = 0
	canWatch  = true
)

func (p *poller) start(h *hangups) error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll for client hang-ups: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		unix.Close(epoll)
		return fmt.Errorf("eventfd for client hang-ups: %w", err)
	}
	p.epoll, p.wake = epoll, wake
	h.wg.Go(func() { p.run(h) })
	return nil
}

func (p *poller) run(h *hangups) {
	defer unix.Close(p.wake)
	defer unix.Close(p.epoll)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return // only EBADF and EINVAL are left, which stop() excludes
		}
		for _, ev := range events[:n] {
			token := uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
			if token == wakeToken {
				return
			}
			h.hungUp(token)
		}
	}
}

// add watches for EPOLLRDHUP alone, once: EPOLLERR and EPOLLHUP come unasked.
// The data is a token and not the descriptor, whose number may be another
// connection's by the time the event is seen.
func (p *poller) add(c net.Conn, token uint64) error {
	return control(c, func(fd int) error {
		return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
			Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(uint32(token)), Pad: int32(uint32(token >> 32)),
		})
	})
}

// remove takes a connection out that will be used further; one that is closed
// has left the set by itself.
func (p *poller) remove(c net.Conn) {
	_ = control(c, func(fd int) error { return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil) })
}

func (p *poller) stop() {
	_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func control(c net.Conn, f func(fd int) error) error {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a %T has no descriptor", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}
