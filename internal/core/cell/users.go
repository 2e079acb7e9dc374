//go:build linux && (amd64 || arm64)

package cell

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// namespaceOwner is the id outside of who makes the user namespaces of boxes. Nobody else has
// it. What the kernel counts for a user (inotify and fanotify instances, queued signals,
// POSIX queues, namespaces) it counts for the owner of the user's namespace, too, and up to
// the same limit: if that were root, a program inside could leave nothing to the machine's root.
const namespaceOwner = 0x7ffdfffe

// keepCapabilities is SECBIT_NO_SETUID_FIXUP of linux/securebits.h: a change of the user takes
// no capability away. The new namespace begins without it.
const keepCapabilities = 1 << 2

// userNamespace returns one in which 0 to box.IDs-1 are uid and up outside. A keeper that may not
// look into processes of others, as in a container, cannot open one that is not its own.
func userNamespace(program int, uid uint32) (int, error) {
	fd, err := userNamespaceOf(program, uid, namespaceOwner)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return userNamespaceOf(program, uid, uint32(os.Geteuid()))
	}
	return fd, err
}

// userNamespaceOf makes it as the namespace of an owner. Its maker is a child that lives until the
// namespace is open.
func userNamespaceOf(program int, uid, owner uint32) (int, error) {
	l, err := spawn.NewList(16, 1<<10)
	if err != nil {
		return -1, err
	}
	defer l.Close()
	// All boxes together are no single user, who may have so many processes.
	unlimited := binary.NativeEndian.AppendUint64(nil, math.MaxUint64)
	l.Try(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC, l.Bytes(append(unlimited, unlimited...)), 0)
	l.Try(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, keepCapabilities, 0, 0, 0)
	l.Try(unix.SYS_SETRESUID, uintptr(owner), uintptr(owner), uintptr(owner)) // where tend is in a container, this id may not exist
	pid := l.Fork("make a user namespace", unix.CLONE_NEWUSER, -1, nil)
	w := newWriter(l)
	w.dieWithKeeper()
	w.wait(program)
	fd := -1
	err = w.holding(pid, func(pid int) error {
		if owner == uint32(os.Geteuid()) {
			if err := shown(pid); err != nil {
				return err
			}
		}
		ids := fmt.Appendf(nil, "0 %d %d", uid, box.IDs)
		for _, name := range []string{"uid_map", "gid_map"} {
			if err := os.WriteFile(procfs.Path(pid, name), ids, 0); err != nil {
				return err
			}
		}
		fd, err = unix.Open(procfs.Path(pid, "ns/user"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}
