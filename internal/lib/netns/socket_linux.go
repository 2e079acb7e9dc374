package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Socket makes a socket in the namespace of the file. Where [Do] may not go there, but the
// namespace belongs to a user namespace of this process's user, a child goes, which shares
// only the table of descriptors. The socket closes on exec.
func Socket(ns *os.File, domain, kind, protocol int) (fd int, err error) {
	fd = -1
	err = Do(ns, func() (err error) {
		fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
		return os.NewSyscallError("socket", err)
	})
	if !errors.Is(err, unix.EPERM) || fd >= 0 {
		return fd, err
	}
	owner, oerr := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_USERNS)
	if oerr != nil {
		return -1, err // it belongs to nobody whom this process may know
	}
	defer unix.Close(owner)
	defer runtime.KeepAlive(ns)
	return child([]step{
		{"enter a user namespace", unix.SYS_SETNS, []uintptr{uintptr(owner), unix.CLONE_NEWUSER}},
		{"enter a network namespace", unix.SYS_SETNS, []uintptr{ns.Fd(), unix.CLONE_NEWNET}},
		{"socket", unix.SYS_SOCKET, []uintptr{uintptr(domain), uintptr(kind | unix.SOCK_CLOEXEC), uintptr(protocol)}},
	}, "")
}

// New makes a network namespace. For a process that is not root it belongs to a user namespace
// of its own.
func New() (*os.File, error) {
	here, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	defer here.Close()
	var made *os.File
	// The thread that leaves its namespace goes back to it; the new one stays by its
	// descriptor.
	err = Do(here, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		made, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if !errors.Is(err, unix.EPERM) {
		return made, err
	}
	const path = "/proc/self/ns/net"
	fd, err := child([]step{{"make a network namespace", unix.SYS_UNSHARE, []uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWNET}}}, path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// step is a system call of a child.
type step struct {
	what string
	nr   uintptr
	args []uintptr
}

// child has one make the calls, and open a path at last unless it is empty. It returns the
// descriptor that the last call did.
func child(steps []step, path string) (int, error) {
	l, err := newList(len(steps)+2, len(path)+64)
	if err != nil {
		return -1, err
	}
	defer l.Close()
	for _, s := range steps {
		l.Call(s.what, s.nr, s.args...)
	}
	if path != "" {
		here := int64(unix.AT_FDCWD)
		l.Call("open "+path, unix.SYS_OPENAT, uintptr(here), l.Text(path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	result := l.Keep()
	l.Call("end", unix.SYS_EXIT_GROUP, 0)
	if err := l.Run(-1); err != nil {
		return -1, fmt.Errorf("a child for a network namespace: %w", err)
	}
	return int(*result), nil
}
