//go:build linux && (amd64 || arm64)

package contain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/lib/newfs"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// userParts belong to containers with the same ids, at one time or one after another.
type userParts struct {
	uid uint32
	ns  int // user namespace
}

// memoryShifts says whether the kernel shows other ids of files in memory. Then one skeleton is
// everybody's, and each container may have ids of its own.
type memoryShifts uint8

const (
	shiftsUnknown memoryShifts = iota
	shiftsAny
	shiftsNone // before Linux 6.3
)

// keepCapabilities is SECBIT_NO_SETUID_FIXUP of linux/securebits.h: a change of the user takes
// no capability away. The new namespace begins without it.
const keepCapabilities = 1 << 2

// userNamespace returns one in which 0 to container.IDs-1 are uid and up outside. It belongs to the
// first of these ids. What the kernel counts for a user (inotify
// and fanotify instances, queued signals, POSIX queues, namespaces) it counts for the owner of the user's
// namespace, too, and up to the same limit: if that were root, a program inside could leave nothing to the
// machine's root, and with one owner of all nothing to other containers.
//
// A keeper that may not look into processes of others, as in a container, cannot open one that is not its own.
func userNamespace(program int, uid uint32) (int, error) {
	fd, err := userNamespaceOf(program, uid, uid)
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
	// The keeper's own limit of processes is not the container's.
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
		ids := fmt.Appendf(nil, "0 %d %d", uid, container.IDs)
		for _, name := range []string{"uid_map", "gid_map"} {
			if err := os.WriteFile(procfs.Path(pid, name), ids, 0); err != nil {
				return err
			}
		}
		failpoint.Hit(failpoint.ContainerMapped)
		fd, err = unix.Open(procfs.Path(pid, "ns/user"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// user returns the user namespace of these ids, and makes it if there is none. p.mu is held.
func (p *parts) user(uid uint32) (ns int, err error) {
	if ns := p.userOf(uid); ns >= 0 {
		return ns, nil
	}
	if ns, err = p.makeUser(uid); err == nil {
		p.keepUser(uid, ns)
	}
	return ns, err
}

// needUser has user find one: several are made at a time.
func (p *parts) needUser(uid uint32) error {
	p.mu.Lock()
	err, found := p.program(), p.userOf(uid) >= 0
	p.mu.Unlock()
	if err != nil || found {
		return err
	}
	ns, err := p.makeUser(uid)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.userOf(uid) >= 0 { // another container with these ids was as fast
		return unix.Close(ns)
	}
	p.keepUser(uid, ns)
	return nil
}

// makeUser makes a user namespace. p.first does not change once it is open.
func (p *parts) makeUser(uid uint32) (int, error) {
	ns, err := userNamespace(p.first, uid)
	if err != nil {
		return -1, fmt.Errorf("a user namespace: %w%s: %w", err, whyNoUsers(err), process.ErrUnsupported)
	}
	return ns, nil
}

// userOf finds the user namespace of these ids; -1: there is none. p.mu is held.
func (p *parts) userOf(uid uint32) int {
	if i := slices.IndexFunc(p.users, func(u *userParts) bool { return u.uid == uid }); i >= 0 {
		return p.users[i].ns
	}
	return -1
}

// keepUser keeps a user namespace for the next container with these ids. p.mu is held.
func (p *parts) keepUser(uid uint32, ns int) {
	p.users = slices.Insert(p.users, 0, &userParts{uid: uid, ns: ns})
	for len(p.users) > mostUsers {
		unix.Close(p.users[mostUsers].ns)
		p.users = p.users[:mostUsers]
	}
}

// whyNotRoot says what root lacks whom the machine refuses something.
func whyNotRoot(err error) string {
	if !errors.Is(err, unix.EPERM) {
		return ""
	}
	return " (tend lacks CAP_SYS_ADMIN of the machine, or a filter of system calls forbids it; " + container.InContainer + ")"
}

// shiftsOfMemory tries it.
func shiftsOfMemory(ns int) (memoryShifts, error) {
	fd, err := newfs.Mount("tmpfs", 0, "size=64k")
	if err != nil {
		return shiftsUnknown, err
	}
	defer unix.Close(fd)
	if mapIDs(fd, ns, 0) != nil {
		return shiftsNone, nil
	}
	return shiftsAny, nil
}

// ownIDs reports whether each container may have ids of its own.
func (p *parts) ownIDs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shifts == shiftsAny
}

// whyNoUsers says what usually keeps a user namespace from being made.
func whyNoUsers(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return " (the sysctl user.max_user_namespaces is 0, or there are as many)"
	case errors.Is(err, unix.EPERM):
		return " (tend runs in a chroot, or the sysctl kernel.unprivileged_userns_clone is 0, or a container forbids them; " + container.InContainer + ")"
	}
	return ""
}
