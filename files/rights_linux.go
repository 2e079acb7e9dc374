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
// saved ids: with these it comes back, and the user cannot send it signals.
func become(u User) error {
	groups := numbers(u.Groups)
	if len(groups) == 0 {
		groups = []uint32{uint32(u.GID)}
	}
	err := setGroups(groups)
	if err == nil {
		err = setIDs(sysSetresgid, u.GID)
	}
	if err == nil {
		err = setIDs(sysSetresuid, u.UID)
	}
	if err == nil {
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
	err := setIDs(sysSetresuid, r.uid)
	if err == nil {
		err = setIDs(sysSetresgid, r.gid)
	}
	if err == nil {
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
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	if data[0].Effective|data[1].Effective == 0 {
		return nil
	}
	return syscall.EPERM
}
