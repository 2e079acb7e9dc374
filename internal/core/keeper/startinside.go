//go:build linux

package keeper

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/contain"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/process"
)

// A start in a container is as one outside, but for this: the container lives and does not end as
// long as the start takes; the slot's group is in the container's; the terminal is one of the
// container's; and the child enters the container before it becomes the program.

// comeIn finds the container that a start is for; nil: it is for this machine. The container's mu is
// held for reading then.
func (k *Keeper) comeIn(spec *process.Spec, req *wire.Spawn) (*heldContainer, *wire.Error) {
	if req.Container == "" {
		if id := spec.Labels[wire.LabelContainer]; id != "" && k.containers.get(container.ID(id)) != nil {
			return nil, &wire.Error{Code: wire.CodeInvalid,
				What: fmt.Sprintf("labels say that the process is in the sandbox %s, and it was to start outside", id)}
		}
		return nil, nil
	}
	if err := req.Container.Validate(); err != nil {
		return nil, containerError(err)
	}
	if spec.Labels[wire.LabelContainer] != string(req.Container) {
		return nil, &wire.Error{Code: wire.CodeInvalid, What: fmt.Sprintf("labels have no %s=%s, and the process is to start in that sandbox",
			wire.LabelContainer, req.Container)}
	}
	if !req.Cred {
		return nil, &wire.Error{Code: wire.CodeInvalid, What: "user is missing; who runs in a sandbox has an id inside"}
	}
	for _, id := range slices.Concat([]uint32{req.UID, req.GID}, req.Groups) {
		if id >= container.IDs {
			return nil, wire.StartError(process.StartBadUser, uint32(unix.EINVAL),
				fmt.Sprintf("id %d; a sandbox has the ids 0 to %d", id, container.IDs-1))
		}
	}
	b, werr := k.living(req.Container)
	if werr != nil {
		return nil, werr
	}
	if b.frozen {
		b.mu.RUnlock()
		return nil, &wire.Error{Code: wire.CodeContainerFrozen}
	}
	if werr := b.network(); werr != nil {
		b.mu.RUnlock()
		return nil, werr
	}
	return b, nil
}

// enter has the program of a process start in a container. b.mu is held.
func (k *Keeper) enter(p *proc, b *heldContainer, prog *spawn.Program) (err error) {
	c, flags := b.container, contain.Namespaces
	if c.Spec.Net == container.NetHost && (c.Spec.UIDBase == 0 || !spawn.Admin()) {
		flags &^= unix.CLONE_NEWNET // it is in the machine's already, which only its root may enter
	}
	e := &spawn.Enter{PID1: c.PIDFD(), Flags: flags, Inner: p.slot.InnerAt(), Digits: p.digits(), Caps: c.Spec.Harden.Caps,
		OneID: c.Spec.UIDBase == 0, NNP: !c.Spec.Harden.Setuid,
		Tasks: c.Nest.Tasks, Zygote: b.zygote}
	if c.Spec.Harden.Seccomp {
		if e.Filter, err = k.containers.filter(); err != nil {
			return err
		}
	}
	if needsLandlock(&c.Spec) {
		if e.Landlock, err = k.containers.landlock(); err != nil {
			return err
		}
	}
	prog.Enter = e
	return nil
}

// withoutCores makes a wanted limit of core files that of all programs in containers, or refuses it.
func withoutCores(prog *spawn.Program) *wire.Error {
	for i := range prog.Limits {
		switch l := &prog.Limits[i]; {
		case l.Resource != unix.RLIMIT_CORE:
		case l.Hard > 1:
			return wire.StartError(process.StartLimits, uint32(unix.EPERM),
				fmt.Sprintf("limits.rlimits[%d]: a program in an isolated sandbox makes no core file: the machine's handler of core dumps would run for it outside, as root", i))
		default:
			*l = spawn.Limit{Resource: l.Resource, Soft: 1, Hard: 1, Try: true}
		}
	}
	return nil
}

// digits is where a child in a container writes its pid.
func (p *proc) digits() *spawn.Digits { return (*spawn.Digits)(p.slot.DigitsAt()) }

// openMaster opens the master of a new terminal, in the process's container if it has one:
// outside it would have no name there. A program inside may have put something else in
// its place.
func (p *proc) openMaster() (int, error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_NONBLOCK
	b := p.container.Load()
	if b == nil {
		return unix.Open("/dev/ptmx", flags, 0)
	}
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", b.container.PID), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	if !b.container.Alive() { // the number may be another's by now
		return -1, unix.ESRCH
	}
	fd, err := eintr.Get(func() (int, error) {
		return unix.Openat2(root, "dev/pts/ptmx", &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS |
			unix.RESOLVE_NO_SYMLINKS})
	})
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.Fstatfs(fd, &fs)
	}
	if err == nil && (fs.Type != unix.DEVPTS_SUPER_MAGIC || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(5, 2)) {
		err = unix.ENODEV
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// outerID is the id on this machine of an id in the process's container.
func (p *proc) outerID(id uint32) int {
	if b := p.container.Load(); b != nil {
		if b.container.Spec.UIDBase == 0 {
			return os.Geteuid()
		}
		return int(b.container.Spec.UIDBase + id)
	}
	return int(id)
}
