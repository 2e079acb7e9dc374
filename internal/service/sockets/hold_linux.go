package sockets

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/unixsock"
)

// backlog of each socket. The kernel makes it what net.core.somaxconn allows.
const backlog = 65535

// outOf is how soon a question is looked for again that there was no room for, in ms.
const outOf = 100

// holder has the sockets.
type holder struct {
	mu      sync.Mutex
	sockets []*socket // guarded by mu
}

// socket is one that is open.
type socket struct {
	Socket
	fd int
	// dev and ino are those of the file of a unix socket, as it was made.
	dev, ino uint64
}

// hold is the process of a holder. It returns only with an error.
func hold(name string) error {
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Bind(l, &unix.SockaddrUnix{Name: "@" + name}), unix.Listen(l, 16)); err != nil {
		return fmt.Errorf("nobody could ask for the sockets: %w", err)
	}
	h := new(holder)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() { // it ends with the process
		<-ended
		h.end()
	}()
	go func() { // this one, too
		h.awaitNobody()
		h.end()
	}()
	for {
		fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			h.answer(fd)
			unix.Close(fd)
		case err == unix.EINTR || err == unix.ECONNABORTED:
		case err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOBUFS || err == unix.ENOMEM:
			// There are none at present, and who asks is still there. A timer of the
			// runtime would need descriptors itself.
			_, _ = unix.Poll(nil, outOf)
		default:
			return err
		}
	}
}

// end ends the process.
func (h *holder) end() {
	h.mu.Lock() // for good
	h.close(h.sockets)
	os.Exit(0)
}

// awaitNobody returns when nobody can read any more what this process writes: then all of
// tend was killed, nobody will ever ask for the sockets, and they would be in the way of
// whoever comes next.
func (h *holder) awaitNobody() {
	polled := []unix.PollFd{{Fd: 1}}
	for {
		if _, err := unix.Poll(polled, -1); err != nil && err != unix.EINTR {
			select {} // it cannot be seen
		}
		if polled[0].Revents&unix.POLLERR != 0 {
			return
		}
		if polled[0].Revents != 0 {
			select {} // it is no pipe
		}
	}
}

// answer answers the one question of a connection. One after the other is enough: who may
// ask does so once for each start.
func (h *holder) answer(fd int) {
	if !unixsock.Trusted(fd) || limit(fd) != nil {
		return
	}
	var q request
	fds, err := receive(fd, &q)
	unixsock.Close(fds) // nobody sends any
	if err != nil || len(q.Hold) > MaxSockets {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if q.Give {
		r, fds := h.give()
		_ = send(fd, r, fds) // who has gone wants none
		return
	}
	_ = send(fd, h.hold(q.Hold), nil)
}

// hold opens what is to be held and is not yet, and closes what is not any more. That
// comes first: a new one may be at a part of its address.
func (h *holder) hold(wanted []Socket) (r reply) {
	open := map[string]*socket{}
	for _, s := range h.sockets {
		open[s.Address] = s
	}
	kept := map[string]*socket{}
	for _, w := range wanted {
		if s := open[w.Address]; s != nil {
			delete(open, w.Address)
			if s.Name = w.Name; renew(s.fd) != nil { // it was shut down, and is of no use any more
				h.close([]*socket{s})
				continue
			}
			kept[w.Address] = s
		}
	}
	for _, s := range open {
		h.close([]*socket{s})
	}
	h.sockets = nil
	for _, w := range wanted {
		s, err := kept[w.Address], error(nil)
		if s == nil {
			s, err = listen(w)
		}
		if err == nil {
			h.sockets = append(h.sockets, s)
		} else if r.Errno == 0 {
			r.Socket, r.Errno = w.Name, errnoOf(err)
		}
	}
	return r
}

// renew makes a socket as it was at first: a program that had it may have changed what is
// common to all who have it.
func renew(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&^unix.O_NONBLOCK)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err == nil { // a unix socket that was shut down listens, and refuses everybody
		polled := []unix.PollFd{{Fd: int32(fd)}}
		if _, err = eintr.Get(func() (int, error) { return unix.Poll(polled, 0) }); err == nil && polled[0].Revents&unix.POLLHUP != 0 {
			err = unix.EPIPE
		}
	}
	return err
}

// give returns all sockets.
func (h *holder) give() (r reply, fds []int) {
	for _, s := range h.sockets {
		r.Names, fds = append(r.Names, s.Name), append(fds, s.fd)
	}
	return r, fds
}

// close closes sockets, and removes the files that are theirs.
func (h *holder) close(all []*socket) {
	for _, s := range all {
		path, ok := strings.CutPrefix(s.Address, unixPrefix)
		var st unix.Stat_t
		if ok && unix.Lstat(path, &st) == nil && st.Dev == s.dev && st.Ino == s.ino {
			_ = unix.Unlink(path) // else the next one replaces it
		}
		unix.Close(s.fd)
	}
}

func errnoOf(err error) syscall.Errno {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return unix.EINVAL
}

// listen opens a socket.
func listen(w Socket) (*socket, error) {
	path, isUnix := strings.CutPrefix(w.Address, unixPrefix)
	if isUnix {
		return listenUnix(w, path)
	}
	at, err := netip.ParseAddrPort(w.Address)
	if err != nil {
		return nil, unix.EINVAL
	}
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())})
	if at.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &socket{Socket: w, fd: fd}, nil
}

func listenUnix(w Socket, path string) (*socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err == unix.EADDRINUSE && abandoned(path) {
		if err = unix.Unlink(path); err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		}
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(path, &st)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &socket{Socket: w, fd: fd, dev: st.Dev, ino: st.Ino}, nil
}

// abandoned reports whether a file is a socket on which nobody listens.
func abandoned(path string) bool {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return false
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) == unix.ECONNREFUSED
}
