package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/files"
	"github.com/tend-run/tend/internal/procfs"
	"github.com/tend-run/tend/process/box"
)

func supported() error { return nil }

// refusedDial is what a port is that nobody listens on.
var refusedDial error = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", unix.ECONNREFUSED)}

// alive reports whether pid 1 of a box is the process that it was. It is asked after
// something of it was opened: what was opened before it died is the box's.
func alive(in box.Info) error {
	if st, ok := procfs.ReadStat(in.PID); !ok || st.Dead() || st.Start != in.Started {
		return driver.ErrStopped
	}
	return nil
}

// openRoot opens the root directory of a box.
func openRoot(in box.Info, uidBase uint32) (*files.Root, error) {
	dir, err := os.OpenFile(procfs.Path(in.PID, "root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, errors.Join(alive(in), err)
	}
	defer dir.Close()
	if err := alive(in); err != nil {
		return nil, err
	}
	return files.OpenRoot(dir, uidBase)
}

// within calls f on a thread that is in the network of a box. The thread goes
// back by a descriptor of the network that it was in; one that cannot go back is never
// used again. It is never the main thread, by which the process itself is known.
func within(in box.Info, f func() error) error {
	there, err := os.Open(procfs.Path(in.PID, "ns/net"))
	if err != nil {
		return errors.Join(alive(in), err)
	}
	defer there.Close()
	if err := alive(in); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- onThread(there, f) }()
	return <-done
}

func onThread(there *os.File, f func() error) error {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// Locked, it is kept from others until the work below is done elsewhere.
		done := make(chan error, 1)
		go func() { done <- onThread(there, f) }()
		err := <-done
		runtime.UnlockOSThread()
		return err
	}
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the sandbox's network: %w", err)
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
		runtime.UnlockOSThread()
	} // else the goroutine ends locked, and its thread with it
	return err
}

// loopbackUp makes the loopback of a new network usable.
func loopbackUp(in box.Info) error {
	return within(in, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		ifr, err := unix.NewIfreq("lo")
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
			return err
		}
		ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
	})
}

// dial connects to a port of a box's loopback: of IPv4, then of IPv6, where some
// servers listen alone. The socket belongs to the network it was made in, whichever
// thread uses it.
func dial(ctx context.Context, in box.Info, port int) (net.Conn, error) {
	c, err := dialOn(ctx, in, unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		return c, nil
	}
	if c, err6 := dialOn(ctx, in, unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}); err6 == nil {
		return c, nil
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, Err: err}
}

func dialOn(ctx context.Context, in box.Info, family int, to unix.Sockaddr) (net.Conn, error) {
	fd := -1
	err := within(in, func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, err
	}
	begun := unix.Connect(fd, to)
	f := os.NewFile(uintptr(fd), "port "+strconv.Itoa(fd)) // after it: what it waits for is the connection
	defer f.Close()
	if begun == unix.EINPROGRESS {
		begun = awaitConnect(ctx, f)
	}
	if begun != nil {
		return nil, os.NewSyscallError("connect", begun)
	}
	return net.FileConn(f)
}

// awaitConnect waits for a connection that was begun. A listener on the loopback
// whose queue is full lets it wait.
func awaitConnect(ctx context.Context, f *os.File) error {
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Write(func(fd uintptr) bool {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if result = err; err == nil && errno != 0 {
			result = unix.Errno(errno)
		}
		if result != nil {
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return !errors.Is(err, unix.ENOTCONN)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	return result
}

// diskOf is the filesystem that a sandbox writes to. What it holds of others counts,
// too: nothing keeps apart what is whose.
func diskOf(dir string) disk {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return disk{}
	}
	unit := int64(st.Bsize)
	return disk{used: int64(st.Blocks-st.Bfree) * unit, total: int64(st.Blocks) * unit}
}

// memoryOfMachine is what the machine has, in bytes.
func memoryOfMachine() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 0
	}
	return int64(si.Totalram) * int64(si.Unit)
}

// pidsOfMachine is how many processes and threads the machine can have.
func pidsOfMachine() int64 {
	b, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

func bootID() string { return procfs.BootID() }
