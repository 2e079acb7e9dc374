//go:build linux

// Package rundir manages the directory in which the roles find each other: sockets, the
// lock and small files. It is <state>/run, 0700; the spools are beside it.
package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/unixsock"
)

// Names in the directory.
const (
	KeeperSocket = "keeper.sock" // SOCK_STREAM; the keeper, for servers
	VaultSocket  = "vault.sock"  // SOCK_SEQPACKET; the keeper, for a new anchor
	AnchorSocket = "anchor.sock" // SOCK_SEQPACKET; the anchor's control
	MirrorSocket = "mirror.sock" // SOCK_SEQPACKET; the launcher's mirror of the vault, for keepers
	Orphans      = "orphans"     // see package reaplog
	Roles        = "roles"       // pids of keeper and server, by the anchor
	ServerArgv   = "server.argv" // the server's command line, NUL-separated
	Program      = "tend-keeper" // the program of keepers after an upgrade
	Lock         = "lock"        // held by the launcher
	Shutdown     = "shutdown"    // when all was ended, and until when; by the anchor
)

// SpoolDir is the name of the directory of the spools in the state directory.
const SpoolDir = "spool"

// Dir is an open run directory. Socket addresses go through /proc/self/fd,
// because a unix socket's path is limited to 107 bytes and a state directory's
// is not.
type Dir struct {
	dir string
	fd  int
}

// Open makes the directory below the state directory at need.
func Open(stateDir string) (*Dir, error) {
	dir := filepath.Join(stateDir, "run")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("run directory %s: %w", dir, err)
	}
	return &Dir{dir, fd}, nil
}

// Close closes the directory.
func (d *Dir) Close() { unix.Close(d.fd) }

// Path of a name in the directory.
func (d *Dir) Path(name string) string { return filepath.Join(d.dir, name) }

// Lost reports whether the directory was removed or moved. No role finds another by it
// then.
func (d *Dir) Lost() bool {
	var open, named unix.Stat_t
	return unix.Fstat(d.fd, &open) == nil &&
		(unix.Stat(d.dir, &named) != nil || named.Dev != open.Dev || named.Ino != open.Ino)
}

// Addr of a socket, short enough for the kernel.
func (d *Dir) Addr(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", d.fd, name) }

// Listen binds a socket of the given type at 0600. The umask would be for the
// whole process; the directory is 0700, so the moment before chmod is safe.
func (d *Dir) Listen(name string, typ int) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	unix.Unlink(d.Path(name))
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: d.Addr(name)})
	if err == nil {
		err = unix.Chmod(d.Path(name), 0o600)
	}
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("socket %s: %w", d.Path(name), err)
	}
	return fd, nil
}

// Dial connects to a socket of the given type. ErrNobody if nothing listens.
func (d *Dir) Dial(name string, typ int) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = eintr.Do(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: d.Addr(name)}) })
	if err == nil {
		return fd, nil
	}
	unix.Close(fd)
	if err == unix.ENOENT || err == unix.ECONNREFUSED {
		return -1, ErrNobody
	}
	return -1, fmt.Errorf("connect to %s: %w", d.Path(name), err)
}

// ErrNobody: no role listens on the socket.
var ErrNobody = errors.New("nobody listens")

// Accept calls serve with each connection of our own user or root, for ever.
// At a failure that is the process's own it calls failed, unless nil, and pauses.
func Accept(listen int, failed func(), serve func(fd int)) {
	for {
		fd, _, err := unix.Accept4(listen, unix.SOCK_CLOEXEC)
		switch {
		case err == unix.EINTR || err == unix.ECONNABORTED:
		case err != nil:
			if failed != nil {
				failed()
			}
			time.Sleep(10 * time.Millisecond)
		case !unixsock.Trusted(fd):
			unix.Close(fd)
		default:
			serve(fd)
		}
	}
}

// HeldError: another process plays the role.
type HeldError struct {
	Role string
	PID  int
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("another %s (pid %d) runs on this state directory", e.Role, e.PID)
}

// Hold makes this process the only one that plays a role. It takes a record lock:
// the kernel releases it when the process ends and not before, an exec keeps it as
// long as the returned descriptor is open, and others can ask for its owner. So an
// anchor that started a role and died before it wrote that down leaves no second one
// behind. *HeldError if another process has the lock.
func (d *Dir) Hold(role string) (fd int, err error) {
	fd, err = unix.Open(d.Path(role+".lock"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, fmt.Errorf("lock of the %s, %s: %w", role, d.Path(role+".lock"), err)
	}
	if err := d.HoldOn(role, fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// HoldOn is Hold by a descriptor that this process got from Hold, for the time behind an exec.
// The kernel's owner of the lock is the table of descriptors. An exec makes a new table if a
// child shares the old one, and the lock stays behind with the child.
func (d *Dir) HoldOn(role string, fd int) error {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	switch err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lock); err {
	case nil:
		return nil
	case unix.EAGAIN, unix.EACCES:
		return &HeldError{role, d.Holder(role)}
	default:
		return fmt.Errorf("lock of the %s, %s: %w", role, d.Path(role+".lock"), err)
	}
}

// Holder is the pid of the process that plays a role; 0: none, as far as we
// can see. Not for the role itself: closing the file releases its lock.
func (d *Dir) Holder(role string) int {
	fd, err := unix.Open(d.Path(role+".lock"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &lock) != nil || lock.Type == unix.F_UNLCK {
		return 0
	}
	return int(lock.Pid)
}
