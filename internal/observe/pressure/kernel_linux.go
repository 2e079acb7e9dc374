package pressure

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

func diskOf(dir string) (Disk, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return Disk{}, false
	}
	block := st.Frsize
	if block <= 0 {
		block = st.Bsize
	}
	return Disk{
		Dir: dir, Size: int64(st.Blocks) * block, Free: int64(st.Bavail) * block,
		Inodes: int64(st.Files), Left: int64(st.Ffree),
	}, true
}

// triggers are told to the kernel: tasks that wait this long of a window, both in
// microseconds. Without rights a window is a multiple of two seconds.
var triggers = []string{"some 150000 1000000", "some 300000 2000000"}

// Trigger waits for stalls. It holds no thread while it does.
type Trigger struct {
	stall, poll *os.File
}

// Trigger asks the kernel to say when the group begins to wait for memory. An error:
// this kernel does not, or not to us; then looks have to be enough.
func (s System) Trigger(g *Group) (*Trigger, error) {
	name := s.Root + g.stallFile()
	var err error
	for _, text := range triggers {
		var t *Trigger
		if t, err = newTrigger(name, text); err == nil {
			return t, nil
		}
	}
	return nil, err
}

func newTrigger(name, text string) (t *Trigger, err error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	stall := os.NewFile(uintptr(fd), name)
	defer func() {
		if err != nil {
			stall.Close()
		}
	}()
	if _, err = eintr.Get(func() (int, error) { return unix.Write(fd, []byte(text+"\x00")) }); err != nil {
		return nil, &os.PathError{Op: "write", Path: name, Err: err}
	}
	// The kernel says it as POLLPRI, which Go's poller does not ask for. An epoll
	// instance in between is readable then.
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLPRI, Fd: int32(fd)}); err == nil {
		err = unix.SetNonblock(ep, true)
	}
	if err != nil {
		unix.Close(ep)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	return &Trigger{stall: stall, poll: os.NewFile(uintptr(ep), "epoll")}, nil
}

// Wait returns when tasks wait for memory. An error: the trigger is closed, or its group
// is gone.
func (t *Trigger) Wait() error {
	c, err := t.poll.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	asked := false
	err = c.Read(func(fd uintptr) bool {
		var events [1]unix.EpollEvent
		n, err := unix.EpollWait(int(fd), events[:], 0)
		switch {
		case err != nil && err != unix.EINTR:
			failed = os.NewSyscallError("epoll_wait", err)
		case n > 0 && events[0].Events&unix.EPOLLERR != 0:
			failed = os.ErrClosed
		}
		// The kernel forgets that there was a stall once it was asked, and Go's poller
		// has asked when this is called again.
		done := failed != nil || n > 0 || asked
		asked = true
		return done
	})
	if err != nil {
		return err
	}
	return failed
}

// Close ends a Wait. It may be called at any moment, once.
func (t *Trigger) Close() error {
	err := t.poll.Close()
	if serr := t.stall.Close(); err == nil {
		err = serr
	}
	return err
}
