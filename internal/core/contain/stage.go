//go:build linux && (amd64 || arm64)

package contain

import (
	"cmp"
	"fmt"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// The stage is a mount namespace with two small filesystems in memory that nobody writes
// to. Each container begins as a copy of it: there is nothing of the machine in it that would
// have to be copied and taken away again.
//
//	/          the root of the stage
//	/m         where the container's root is mounted first
//	/s         what that is made from; taken away in the end
//	/s/b, p0 … the skeleton and the pieces, unless the containers bring a root of their own
//	/s/u       own directory
//	/s/d       /dev of an ordinary user's container, which moves it to its place; or devices of the machine for root's
//	/s/1, 2 …  layers, the topmost first
//	/s/proc    the machine's: a user namespace may mount proc only where there is one
//
// Root's stage belongs to no container's user namespace. The kernel lets a container take away nothing alone of its
// copy, so pivot_root(2) takes that away as a whole. Over an ordinary user's, the container's root is put.
const (
	stageMerge = "/m"
	stageParts = "/s"
	stageBase  = "b"
	stageOwn   = "u"
	stageDev   = "d"
	stageProc  = "proc"
)

// stageLayers is how many layers have a place: as many as a container may have, with its copies.
const stageLayers = container.MaxLayers

func stageLayer(i int) string { return fmt.Sprint(i + 1) }

// writer appends to a list the steps by which a stage or a container is made.
type writer struct {
	*spawn.List
	empty, none, dot, root uintptr
}

func newWriter(l *spawn.List) writer {
	return writer{List: l, empty: l.Text(""), none: l.Text("none"), dot: l.Text("."), root: l.Text("/")}
}

func (w *writer) mount(to, kind string, flags uintptr, options string) {
	w.Call("mount "+kind+" on "+to, unix.SYS_MOUNT, w.none, w.Text(to), w.Text(kind), flags, w.Text(options))
}

// move puts a detached mount in a place that is there.
func (w *writer) move(what string, fd int, to string) {
	w.Call(what, unix.SYS_MOVE_MOUNT, uintptr(fd), w.empty, spawn.Here, w.Text(to), unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// beRoot makes the child root of its user namespace.
func (w *writer) beRoot() {
	w.Call("groups", unix.SYS_SETGROUPS, 0, 0)
	w.Call("gid", unix.SYS_SETRESGID, 0, 0, 0)
	w.Call("uid", unix.SYS_SETRESUID, 0, 0, 0)
}

// lead makes the child, which is to be pid 1, lead a session, and gives the container its name.
func (w *writer) lead(s *container.Spec) {
	w.Call("session", unix.SYS_SETSID)
	name := cmp.Or(s.Hostname, defaultName)
	w.Call("host name", unix.SYS_SETHOSTNAME, w.Text(name), uintptr(len(name)))
}

// enterRoot makes the working directory the root. It is put over the stage.
func (w *writer) enterRoot() {
	w.Call("put the root over the stage", unix.SYS_MOUNT, w.dot, w.root, 0, unix.MS_MOVE, 0)
	w.Call("make it the root", unix.SYS_CHROOT, w.dot)
	w.Call("go to /", unix.SYS_CHDIR, w.root)
}

// pivot makes the working directory the root. Until leaveStage the stage lies over it, where .. leads.
func (w *writer) pivot() {
	w.Call("pivot_root", unix.SYS_PIVOT_ROOT, w.dot, w.dot)
	w.Call("go to /", unix.SYS_CHDIR, w.root)
}

// leaveStage takes the stage away, with all that is in it.
func (w *writer) leaveStage() {
	w.Call("go to the parts", unix.SYS_FCHDIR, keptParts)
	w.Call("go to the stage", unix.SYS_CHDIR, w.Text(".."))
	w.Call("leave the stage", unix.SYS_UMOUNT2, w.dot, unix.MNT_DETACH)
	w.Call("go to /", unix.SYS_CHDIR, w.root)
}

// leaveParts takes the parts of a stage away that is the user namespace's own.
func (w *writer) leaveParts() {
	w.Call("go to the parts", unix.SYS_FCHDIR, keptParts)
	w.Call("leave the parts", unix.SYS_UMOUNT2, w.dot, unix.MNT_DETACH)
	w.Call("go to /", unix.SYS_CHDIR, w.root)
}

// become makes the child the pid 1 of a container.
func (w *writer) become(first int, s *container.Spec) {
	w.Call("no new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	w.Call("close its streams", unix.SYS_CLOSE_RANGE, 0, 2, 0)
	argv := []string{firstName}
	if s.Net == container.NetHost {
		argv = append(argv, firstNoNet)
	}
	w.execute("become pid 1", first, argv)
}

// wait has the child hold its namespaces, until it is ended.
func (w *writer) wait(program int) { w.execute("wait", program, []string{firstName, firstNoNet}) }

func (w *writer) execute(what string, program int, argv []string) {
	w.Call(what, unix.SYS_EXECVEAT, uintptr(program), w.empty, w.Texts(argv...), w.Texts(), unix.AT_EMPTY_PATH)
}

func (w *writer) dieWithKeeper() {
	w.Call("end with the keeper", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

// holding makes the child that a list describes, calls open with the pid of the one that it
// has made and that waits, and ends that one.
func (w *writer) holding(pid *uint32, open func(pid int) error) error {
	runtime.LockOSThread() // the child ends with the thread that made it
	defer runtime.UnlockOSThread()
	err := w.Run(-1)
	if *pid != 0 {
		defer func() {
			unix.Kill(int(*pid), unix.SIGKILL)
			collect(int(*pid))
		}()
	}
	if err != nil {
		return err
	}
	return open(int(*pid))
}

// stageWriter appends the steps by which a stage is made.
type stageWriter struct {
	writer
	memory, options uintptr // of each tmpfs
}

func writeStage(l *spawn.List, options string) stageWriter {
	return stageWriter{writer: newWriter(l), memory: l.Text("tmpfs"), options: l.Text(options)}
}

func (w *stageWriter) mkdir(name string) {
	w.Call("make "+name, unix.SYS_MKDIRAT, spawn.Here, w.Text(name), 0o755)
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

// bindDevices puts the machine's devices over files.
func (w *stageWriter) bindDevices(dir string) {
	for _, d := range nodes {
		w.Call("bind /dev/"+d.name, unix.SYS_MOUNT, w.Text("/dev/"+d.name), w.Text(dir+d.name), 0, unix.MS_BIND, 0)
	}
}

// end makes the stage the root, and waits. back leads to it.
func (w *stageWriter) end(back string, program int) {
	w.Call("go back", unix.SYS_CHDIR, w.Text(back))
	w.Call("pivot_root", unix.SYS_PIVOT_ROOT, w.dot, w.dot)
	w.Call("leave the machine's root", unix.SYS_UMOUNT2, w.dot, unix.MNT_DETACH)
	w.wait(program)
}

// newStage makes a stage of the machine's user namespace, with a skeleton if base is not -1, and places for
// pieces. bound: it has the machine's devices. Its maker is a child that lives until the namespace is open. dir is a
// directory of the keeper's.
func newStage(program int, dir string, base int, pieces []piece, bound bool) (int, error) {
	l, err := spawn.NewList(64+stageLayers+len(pieces)+2*len(nodes), 16<<10+len(dir)+64*len(pieces))
	if err != nil {
		return -1, err
	}
	defer l.Close()
	w := writeStage(l, "mode=755,uid=0,gid=0,size=64k")
	w.Call("go to the keeper's directory", unix.SYS_CHDIR, w.Text(filepath.Dir(dir)))
	pid := w.Fork("make a mount namespace", unix.CLONE_NEWNS, -1, nil)
	w.begin(filepath.Base(dir))
	w.places(stageBase, stageOwn, stageProc)
	for _, p := range pieces {
		w.mkdir(p.at)
	}
	if base >= 0 {
		w.move("attach the skeleton", base, stageBase)
	}
	if bound {
		w.mkdir(stageDev)
		for _, d := range nodes {
			w.Call("make "+d.name, unix.SYS_MKNODAT, spawn.Here, w.Text(stageDev+"/"+d.name), unix.S_IFREG, 0)
		}
		w.bindDevices(stageDev + "/")
	}
	w.Call("bind proc", unix.SYS_MOUNT, w.Text("/proc"), w.Text(stageProc), 0, unix.MS_BIND|unix.MS_REC, 0)
	w.readOnly()
	w.end("..", program)
	fd := -1
	err = w.holding(pid, func(pid int) (err error) {
		failpoint.Hit(failpoint.ContainerStaged)
		if err := shown(pid); err != nil {
			return err
		}
		fd, err = unix.Open(procfs.Path(pid, "ns/mnt"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, explain(err)
}

// emptyNet returns a network namespace in which nothing is configured.
func emptyNet() (int, error) {
	l, err := spawn.NewSharingList(3, 64)
	if err != nil {
		return -1, err
	}
	defer l.Close()
	l.Call("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWNET)
	l.Call("open", unix.SYS_OPENAT, spawn.Here, l.Text("/proc/self/ns/net"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	fd := l.Keep()
	l.Call("end", unix.SYS_EXIT, 0)
	if err := l.Run(-1); err != nil {
		return -1, err
	}
	return int(*fd), nil
}
