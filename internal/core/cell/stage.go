//go:build linux && (amd64 || arm64)

package cell

import (
	"fmt"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spawn"
)

// The stage is a mount namespace with two small filesystems in memory that nobody writes
// to. Each box begins as a copy of it: there is nothing of the machine in it that would
// have to be copied and taken away again, and no pivot_root(2), for which the kernel
// looks at each thread of the machine.
//
//	/          the root of the stage; in the end the box's root lies over it
//	/m         where the box's root is mounted first
//	/s         what that is made from; taken away as a whole
//	/s/b, u    base, unless the boxes bring a root of their own, and own directory
//	/s/d       /dev, which a box moves to its place
//	/s/1, 2 …  layers, the topmost first
//	/s/proc    the machine's: a user namespace may mount proc only where there is one
const (
	stageMerge = "/m"
	stageParts = "/s"
	stageBase  = "b"
	stageOwn   = "u"
	stageDev   = "d"
	stageProc  = "proc"
)

// stageLayers is how many layers have a place: as many as a box may have, and one over them.
const stageLayers = box.MaxLayers + 1

func stageLayer(i int) string { return fmt.Sprint(i + 1) }

// stageWriter appends to a script the steps by which a stage is made.
type stageWriter struct {
	*spawn.List
	at              uintptr // the working directory
	none, dot, root uintptr
	memory, options uintptr // of each tmpfs
}

func writeStage(l *spawn.List, options string) stageWriter {
	here := int64(unix.AT_FDCWD)
	return stageWriter{List: l, at: uintptr(here), none: l.Text("none"), dot: l.Text("."), root: l.Text("/"), memory: l.Text("tmpfs"),
		options: l.Text(options)}
}

func (w *stageWriter) dieWithKeeper() {
	w.Call("end with the keeper", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

func (w *stageWriter) mkdir(name string) {
	w.Call("make "+name, unix.SYS_MKDIRAT, w.at, w.Text(name), 0o755)
}

// readOnly closes the tmpfs of the working directory.
func (w *stageWriter) readOnly() {
	w.Call("close it", unix.SYS_MOUNT, w.none, w.dot, 0, unix.MS_REMOUNT|unix.MS_RDONLY, w.options)
}

// begin goes to the root of the stage, which lies over dir in a namespace of its own.
func (w *stageWriter) begin(dir string) {
	w.dieWithKeeper()
	w.Call("mounts of its own", unix.SYS_MOUNT, w.none, w.root, 0, unix.MS_REC|unix.MS_PRIVATE, 0)
	place := w.Text(dir)
	w.Call("mount the stage", unix.SYS_MOUNT, w.none, place, w.memory, 0, w.options)
	w.Call("go there", unix.SYS_CHDIR, place)
}

// places makes the directories, and goes to that of the parts: those of these names and one
// for each layer. That one is still to be closed.
func (w *stageWriter) places(parts ...string) {
	w.mkdir(stageMerge[1:])
	w.mkdir(stageParts[1:])
	w.readOnly()
	dir := w.Text(stageParts[1:])
	w.Call("mount the parts", unix.SYS_MOUNT, w.none, dir, w.memory, 0, w.options)
	w.Call("go to the parts", unix.SYS_CHDIR, dir)
	for _, name := range parts {
		w.mkdir(name)
	}
	for i := range stageLayers {
		w.mkdir(stageLayer(i))
	}
}

// end makes the stage the root, and waits. back leads to it.
func (w *stageWriter) end(back string, program int) {
	w.Call("go back", unix.SYS_CHDIR, w.Text(back))
	w.Call("pivot_root", unix.SYS_PIVOT_ROOT, w.dot, w.dot)
	w.Call("leave the machine's root", unix.SYS_UMOUNT2, w.dot, unix.MNT_DETACH)
	w.Call("wait", unix.SYS_EXECVEAT, uintptr(program), w.Text(""), w.Texts(firstName, firstNoNet), w.Texts(), unix.AT_EMPTY_PATH)
}

// attach puts a detached mount in a place of the working directory, which it makes.
func (w *stageWriter) attach(name string, fd int) {
	w.mkdir(name)
	w.put(name, fd)
}

// put is attach for a place that is there.
func (w *stageWriter) put(name string, fd int) {
	w.Call("attach "+name, unix.SYS_MOVE_MOUNT, uintptr(fd), w.Text(""), w.at, w.Text(name), unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// newStage makes the stage of a user namespace, with /dev and base, which are detached mounts;
// base -1: it has none. Its maker is a child that lives until the namespace is open. dir is a
// directory of the keeper's.
func newStage(ns, program int, dir string, dev, base int) (int, error) {
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return -1, err
	}
	defer unix.Munmap(page)
	pid := pidIn(page)
	l, err := spawn.NewList(64+stageLayers, 16<<10+len(dir))
	if err != nil {
		return -1, err
	}
	defer l.Close()
	w := writeStage(l, "mode=755,uid=0,gid=0,size=64k")
	// It goes there while it has powers: a directory on the way may belong to an id that the namespace lacks.
	w.Call("go to the keeper's directory", unix.SYS_CHDIR, w.Text(filepath.Dir(dir)))
	w.Call("enter the user namespace", unix.SYS_SETNS, uintptr(ns), unix.CLONE_NEWUSER)
	w.Fork("make a mount namespace", unix.CLONE_NEWNS, -1, pid)
	w.begin(filepath.Base(dir)) // as the keeper's user: this directory is closed to others
	w.Call("groups", unix.SYS_SETGROUPS, 0, 0)
	w.Call("gid", unix.SYS_SETRESGID, 0, 0, 0)
	w.Call("uid", unix.SYS_SETRESUID, 0, 0, 0)
	w.dieWithKeeper() // another user has forgotten it
	w.places(stageBase, stageOwn, stageProc, stageDev)
	w.put(stageDev, dev)
	if base >= 0 {
		w.put(stageBase, base)
	}
	w.Call("bind proc", unix.SYS_MOUNT, w.Text("/proc"), w.Text(stageProc), 0, unix.MS_BIND|unix.MS_REC, 0)
	w.readOnly()
	w.end("..", program)

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
