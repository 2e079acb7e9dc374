//go:build linux && (amd64 || arm64)

package cell

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/script"
	"github.com/tend-run/tend/process/box"
)

// The stage is a mount namespace with two small filesystems in memory that nobody writes
// to. Each box begins as a copy of it: there is nothing of the machine in it that would
// have to be copied and taken away again, and no pivot_root(2), for which the kernel
// looks at each thread of the machine.
//
//	/          the root of the stage; in the end the box's root lies over it
//	/m         where the box's root is mounted first
//	/s         what that is made from; taken away as a whole
//	/s/b, u    base and own directory
//	/s/1, 2 …  layers
//	/s/proc    the machine's: a user namespace may mount proc only where there is one
const (
	stageMerge = "/m"
	stageParts = "/s"
	stageBase  = "b"
	stageOwn   = "u"
	stageProc  = "proc"
)

func stageLayer(i int) string { return fmt.Sprint(i + 1) }

// newStage makes the stage of a user namespace. Its maker is a child that lives until the
// namespace is open. dir is a directory of the keeper's.
func newStage(ns, program int, dir string) (int, error) {
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return -1, err
	}
	defer unix.Munmap(page)
	pid := pidIn(page)
	l, err := script.NewList(32+box.MaxLayers, 8<<10+len(dir))
	if err != nil {
		return -1, err
	}
	defer l.Close()
	here := int64(unix.AT_FDCWD)
	none, dot, root, empty := l.Text("none"), l.Text("."), l.Text("/"), l.Text("")
	memory, options := l.Text("tmpfs"), l.Text("mode=755,uid=0,gid=0,size=64k")
	mkdir := func(name string) {
		l.Call("make "+name, unix.SYS_MKDIRAT, uintptr(here), l.Text(name), 0o755)
	}
	readOnly := func() {
		l.Call("close it", unix.SYS_MOUNT, none, dot, 0, unix.MS_REMOUNT|unix.MS_RDONLY, options)
	}
	l.Call("enter the user namespace", unix.SYS_SETNS, uintptr(ns), unix.CLONE_NEWUSER)
	l.Fork("make a mount namespace", unix.CLONE_NEWNS, pid)
	l.Call("end with the keeper", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	l.Call("mounts of its own", unix.SYS_MOUNT, none, root, 0, unix.MS_REC|unix.MS_PRIVATE, 0)
	place := l.Text(dir)
	l.Call("mount the stage", unix.SYS_MOUNT, none, place, memory, 0, options)
	l.Call("go there", unix.SYS_CHDIR, place) // as the keeper's user: the way there is closed to others
	l.Call("groups", unix.SYS_SETGROUPS, 0, 0)
	l.Call("gid", unix.SYS_SETRESGID, 0, 0, 0)
	l.Call("uid", unix.SYS_SETRESUID, 0, 0, 0)
	l.Call("end with the keeper", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) // another user has forgotten it
	mkdir(stageMerge[1:])
	mkdir(stageParts[1:])
	readOnly()
	parts := l.Text(stageParts[1:])
	l.Call("mount the parts", unix.SYS_MOUNT, none, parts, memory, 0, options)
	l.Call("go to the parts", unix.SYS_CHDIR, parts)
	for _, name := range []string{stageBase, stageOwn, stageProc} {
		mkdir(name)
	}
	for i := range box.MaxLayers {
		mkdir(stageLayer(i))
	}
	l.Call("bind proc", unix.SYS_MOUNT, l.Text("/proc"), l.Text(stageProc), 0, unix.MS_BIND|unix.MS_REC, 0)
	readOnly()
	l.Call("go back", unix.SYS_CHDIR, l.Text(".."))
	l.Call("pivot_root", unix.SYS_PIVOT_ROOT, dot, dot)
	l.Call("leave the machine's root", unix.SYS_UMOUNT2, dot, unix.MNT_DETACH)
	l.Call("wait", unix.SYS_EXECVEAT, uintptr(program), empty, l.Texts(firstName, firstNoNet), l.Texts(), unix.AT_EMPTY_PATH)

	runtime.LockOSThread() // the child ends with the thread that made it
	defer runtime.UnlockOSThread()
	if err := l.Run(-1); err != nil {
		if *pid != 0 {
			collect(int(*pid))
		}
		return -1, explain(err)
	}
	failpoint.Hit(failpoint.CellStaged)
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", *pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	unix.Kill(int(*pid), unix.SIGKILL)
	collect(int(*pid))
	return fd, err
}
