package files

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rights are the ids of a thread. The functions here act on the calling thread
// alone: those of package syscall change all threads of the process, so the
// system calls are made as they are.
type rights struct {
	uid, gid int
	groups   []uint32
	// caps are set where the thread gets some of them only (root inside).
	caps *capabilities
	same bool // the user is the daemon's own, with its groups
}

// currentRights are those of the daemon, if it is called on a thread that was
// not changed.
func currentRights() *rights {
	groups, err := os.Getgroups()
	if err != nil {
		groups = nil
	}
	return &rights{uid: os.Geteuid(), gid: os.Getegid(), groups: numbers(groups)}
}

func numbers(ids []int) []uint32 {
	out := make([]uint32, len(ids))
	for i, id := range ids {
		out[i] = uint32(id)
	}
	return out
}

// become gives the thread the effective ids and the groups of the user. The
// effective user id is what the kernel looks at for files, and, unlike the file
// system user id alone, also for those of /proc/sys. It keeps its real and
// saved ids: with these it comes back, and the user cannot send it signals. Root
// inside a sandbox keeps, of the capabilities, those for files, and so does who acts as
// root inside: the capabilities and the user's own id are what makes it so that what it
// makes is the user's.
func (r *rights) become(u User, rootInside bool) error {
	groups := numbers(u.Groups)
	if len(groups) == 0 {
		groups = []uint32{uint32(u.GID)}
	}
	var err error
	// A user namespace of one id may forbid to change them.
	if r.same = u.UID == r.uid && u.GID == r.gid && len(u.Groups) == 0; !r.same {
		err = setGroups(groups)
	}
	if err == nil {
		err = setIDs(sysSetresgid, u.GID)
	}
	if err == nil {
		err = setIDs(sysSetresuid, u.UID)
	}
	switch {
	case err != nil:
	case rootInside:
		if r.caps, err = currentCapabilities(); err == nil {
			err = r.setCapabilities(fileCapabilities)
		}
	default:
		err = dropCapabilities()
	}
	if err != nil {
		return fmt.Errorf("the daemon cannot act as user '%s': %w: %v", u.Name, ErrPermission, err)
	}
	return nil
}

// restore takes the rights back: the user id first, for with it the thread may
// do the rest.
func (r *rights) restore() error {
	var err error
	if r.caps != nil {
		// First, for root inside may have the daemon's user id.
		err = r.caps.set()
	}
	if err == nil {
		err = setIDs(sysSetresuid, r.uid)
	}
	if err == nil {
		err = setIDs(sysSetresgid, r.gid)
	}
	if err == nil && !r.same {
		err = setGroups(r.groups)
	}
	if err != nil {
		return fmt.Errorf("a thread could not be given the daemon's rights back and is given up: %w", err)
	}
	return nil
}

// setIDs sets the effective one of three ids.
func setIDs(call uintptr, id int) error {
	keep := ^uintptr(0)
	if _, _, errno := unix.RawSyscall(call, keep, uintptr(uint32(id)), keep); errno != 0 {
		return errno
	}
	return nil
}

func setGroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(sysSetgroups, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	return nil
}

// dropCapabilities: the kernel has done it with the change of the user id,
// unless the daemon was started with securebits that forbid it.
func dropCapabilities() error {
	caps, err := currentCapabilities()
	if err != nil {
		return err
	}
	if caps[0].Effective|caps[1].Effective == 0 {
		return nil
	}
	return syscall.EPERM
}

// capabilities of a thread, in the kernel's form.
type capabilities [2]unix.CapUserData

// fileCapabilities are what root inside a sandbox has of root's: to read and write
// whatever the modes say, and to set owners and modes. Without CAP_FSETID a write
// removes setuid bits.
const fileCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER

func currentCapabilities() (*capabilities, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	caps := new(capabilities)
	return caps, unix.Capget(&header, &caps[0])
}

func (c *capabilities) set() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return unix.Capset(&header, &c[0])
}

// setCapabilities makes these the thread's only effective ones, as far as the daemon
// has them. It keeps what it may have again. become has been called, for root inside.
func (r *rights) setCapabilities(effective uint32) error {
	caps := *r.caps
	caps[0].Effective, caps[1].Effective = caps[0].Permitted&effective, 0
	return caps.set()
}
