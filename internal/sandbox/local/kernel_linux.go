package local

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/network"
)

func supported() error { return nil }

// refusedDial is what a port is that nobody listens on.
var refusedDial error = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", unix.ECONNREFUSED)}

// alive reports whether pid 1 of a container is the process that it was. It is asked after
// something of it was opened: what was opened before it died is the container's.
func alive(in container.Info) error {
	if st, ok := procfs.ReadStat(in.PID); !ok || st.Dead() || st.Start != in.Started {
		return driver.ErrStopped
	}
	return nil
}

// lost says why something of a container's first process could not be opened. One that is
// about to exit has neither root nor namespaces any more, and counts as alive still.
func lost(in container.Info, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return driver.ErrStopped
	}
	return errors.Join(alive(in), err)
}

// openRoot opens the root directory of a container.
func openRoot(in container.Info, uidBase uint32) (*files.Root, error) {
	dir, err := os.OpenFile(procfs.Path(in.PID, "root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, lost(in, err)
	}
	defer dir.Close()
	if err := alive(in); err != nil {
		return nil, err
	}
	if uidBase == 0 {
		return files.OpenOwnRoot(dir)
	}
	return files.OpenRoot(dir, uidBase)
}

// openSpace opens the network of a container.
func openSpace(in container.Info) (*network.Space, error) {
	s, err := network.OpenSpace(procfs.Path(in.PID, "ns/net"))
	if err != nil {
		return nil, lost(in, err)
	}
	if err := alive(in); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// dial connects to a port of a container's loopback: of IPv4, then of IPv6, where some
// servers listen alone.
func dial(ctx context.Context, in container.Info, port int) (net.Conn, error) {
	s, err := openSpace(in)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	c, err := s.Dial(ctx, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)))
	if err == nil {
		return c, nil
	}
	if c, err6 := s.Dial(ctx, netip.AddrPortFrom(netip.IPv6Loopback(), uint16(port))); err6 == nil {
		return c, nil
	}
	return nil, err
}

// spaceOf is the filesystem of a directory.
func spaceOf(dir string) space {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return space{}
	}
	unit := int64(st.Bsize)
	return space{used: int64(st.Blocks-st.Bfree) * unit, total: int64(st.Blocks) * unit}
}

// freeOf is what is free on the filesystem of a directory for whoever writes to it, bytes.
func freeOf(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := eintr.Do(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// rootOf is the path of a container's root directory.
func rootOf(in container.Info) string { return procfs.Path(in.PID, "root") }

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

// spread has the filesystem of a directory put what is below each of its directories into a place of
// its own, where it knows such a thing (ext4: chattr +T). Sandboxes make and remove many files as they
// begin and end, and ext4 uses no inode again for some seconds: in one place the search for a free
// one passes by all of them, which took two fifths of the time of a creation.
func spread(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	const topDir = 0x20000 // FS_TOPDIR_FL
	if flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil && flags&topDir == 0 {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|topDir)) // others have no such flag
	}
	return nil
}

// isWhiteout reports whether an entry of what a box writes to says that the one below it is gone.
func isWhiteout(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// isOpaque reports whether a directory of what a box writes to hides the one below it.
func isOpaque(dir string) bool {
	var v [1]byte
	n, _ := unix.Lgetxattr(dir, "user.overlay.opaque", v[:])
	return n == 1 && v[0] == 'y'
}
