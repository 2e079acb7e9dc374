//go:build linux && (amd64 || arm64)

package contain

import (
	"crypto/rand"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/lib/overlay"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// Descriptors of pid 1 while it is made, in the places of its streams.
const (
	keptParts  = 0
	keptSource = 1
	keptTree   = 2
)

// write appends what the child does.
func (m *Maker) write(l *spawn.List, s *container.Spec, h *sources, proc string, group int, pid *uint32) {
	w := newWriter(l)
	const plain = unix.MS_NOSUID | unix.MS_NODEV
	network := func() {
		if s.Net != container.NetHost {
			l.Call("enter an empty network", unix.SYS_SETNS, uintptr(h.kit.void), unix.CLONE_NEWNET)
		}
	}

	// The child that is made into the container's group, or the one around it.
	if m.paths() { // the network belongs to the user namespace
		l.Call("enter the user namespace", unix.SYS_SETNS, uintptr(h.kit.ns), unix.CLONE_NEWUSER)
		network()
		l.Call("enter the stage", unix.SYS_SETNS, uintptr(h.kit.stage), unix.CLONE_NEWNS)
		l.Fork(stepNamespaces, namespaces|unix.CLONE_NEWCGROUP, -1, pid)
		if m.byPath {
			w.beRoot()
		}
	} else if proc == procHanded {
		network()
		l.Call(stepCgroups, unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
		// Pid 1 mounts its proc where the kernel asks for no other one: in the mount namespace of the machine.
		l.Fork(stepNamespaces, unix.CLONE_NEWPID, group, pid)
		w.handProc()
		w.enterStage(s, h.kit)
		l.Call(stepNamespaces, unix.SYS_UNSHARE, namespaces&^unix.CLONE_NEWPID)
		w.beRoot()
	} else {
		network()
		w.enterStage(s, h.kit)
		// Not by the clone: with CLONE_INTO_CGROUP the namespace begins at the child's group, and
		// what is in it may put no process into another group of the container (nsdelegate).
		l.Call(stepCgroups, unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
		l.Fork(stepNamespaces, namespaces, group, pid)
		w.beRoot()
	}

	// Pid 1.
	w.lead(s)
	l.Call("go to the parts", unix.SYS_CHDIR, l.Text(stageParts))
	w.attach("own directory", h.own, stageOwn)
	for i, layer := range h.layers {
		w.attach(fmt.Sprintf("layers[%d]", i), layer, stageLayer(i))
	}
	if s.Base == container.BaseHost && !m.paths() {
		w.move("skeleton", keptSource, stageBase)
	}
	for _, p := range h.pieces {
		if p.fd >= 0 {
			w.move("show "+p.path, p.fd, p.at)
		}
	}
	w.mount(stageMerge, "overlay", unix.MS_NODEV, rootOptions(s, h))
	for i, p := range h.pieces {
		if !p.bound {
			w.mount(stageMerge+p.path, "overlay", unix.MS_NODEV, pieceOptions(s, h, i))
			continue
		}
		to := l.Text(stageMerge + p.path)
		l.Call("bind "+p.path, unix.SYS_MOUNT, l.Text(p.at), to, 0, unix.MS_BIND|unix.MS_REC, 0)
		l.Call("close "+p.path, unix.SYS_MOUNT_SETATTR, spawn.Here, to, unix.AT_RECURSIVE,
			w.attr(unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID), unsafe.Sizeof(unix.MountAttr{}))
	}
	l.Call("open the parts", unix.SYS_OPENAT, spawn.Here, l.Text(stageParts), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	l.Result(0)
	l.Call("keep the parts", unix.SYS_DUP3, 0, keptParts, unix.O_CLOEXEC)
	l.Call("go to the root", unix.SYS_CHDIR, l.Text(stageMerge))
	// From here on all names are looked up inside. A root of somebody else's may have put
	// a link where /proc should be. It is put there while the stage still has the machine's.
	if m.paths() {
		w.enterRoot()
		m.writeProc(&w, proc)
		l.Call("/dev", unix.SYS_MOVE_MOUNT, keptParts, l.Text(stageDev), spawn.Here, l.Text("/dev"), 0)
	} else {
		w.pivot()
		m.writeProc(&w, proc)
		w.move("/dev", h.kit.dev, "/dev")
		if h.kit.bound {
			w.takeDevices()
		}
		w.leaveStage()
	}
	l.Call("find /proc", unix.SYS_FACCESSAT, spawn.Here, l.Text("/proc/self/status"), 0)
	w.mount("/dev/shm", "tmpfs", plain, shmOptions)
	terminals := "newinstance,ptmxmode=0666,mode=0620," + maxTerminals
	if !m.rootless {
		terminals += ",gid=5"
	}
	w.mount("/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, terminals)
	w.mount("/run", "tmpfs", plain, runOptions)
	m.closeProc(l)
	for i, b := range h.binds {
		m.target(l, b)
		what := fmt.Sprintf("binds[%d]", i)
		if b.fd < 0 {
			w.openBind(what+".source", b)
			b.fd = keptTree
		} else if m.byPath {
			w.close(what+".source", b.fd, b.readOnly)
		}
		w.move(what, b.fd, b.target)
	}
	if m.paths() {
		w.leaveParts()
	}
	w.become(h.kit.first, s)
}

// stepProc is the beginning of the steps that make /proc.
const stepProc = "mount proc"

// handProc makes a proc of the namespace of pids where it is, and keeps its mount as keptTree.
func (w *writer) handProc() {
	w.Call(stepProc+" for it", unix.SYS_FSOPEN, w.Text("proc"), unix.FSOPEN_CLOEXEC)
	w.Result(0)
	w.Call(stepProc+" for it", unix.SYS_DUP3, 0, keptSource, unix.O_CLOEXEC)
	w.Call(stepProc+" for it", unix.SYS_FSCONFIG, keptSource, unix.FSCONFIG_CMD_CREATE, 0, 0, 0)
	const attr = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	w.Call(stepProc+" for it", unix.SYS_FSMOUNT, keptSource, unix.FSMOUNT_CLOEXEC, attr)
	w.Result(0)
	w.Call(stepProc+" for it", unix.SYS_DUP3, 0, keptTree, unix.O_CLOEXEC)
}

// writeProc puts /proc in its place, while the stage still has the machine's.
func (m *Maker) writeProc(w *writer, from string) {
	switch from {
	case procHanded:
		w.move(stepProc, keptTree, "/proc")
	case procShared:
		theirs := stageProc
		if m.paths() {
			theirs = stageHost + "/proc"
		}
		w.Call(stepProc+" of tend", unix.SYS_OPEN_TREE, keptParts, w.Text(theirs), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		w.Result(0)
		w.Call(stepProc+" of tend", unix.SYS_DUP3, 0, keptTree, unix.O_CLOEXEC)
		w.move(stepProc, keptTree, "/proc")
	default:
		w.mount("/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
}

// enterStage enters root's stage and then the user namespace. On the way it opens a copy of the skeleton,
// with the ids that are inside, as keptSource.
func (w *writer) enterStage(s *container.Spec, k *kit) {
	w.Call("enter the stage", unix.SYS_SETNS, uintptr(k.stage), unix.CLONE_NEWNS)
	if s.Base == container.BaseHost {
		const what = "skeleton"
		w.Call(what, unix.SYS_OPEN_TREE, spawn.Here, w.Text(stageParts+"/"+stageBase), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		w.Result(0)
		w.Call(what, unix.SYS_DUP3, 0, keptSource, unix.O_CLOEXEC)
		if k.shifted {
			w.Call(what, unix.SYS_MOUNT_SETATTR, keptSource, w.empty, unix.AT_EMPTY_PATH,
				w.attrOf(unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(k.ns)}), unsafe.Sizeof(unix.MountAttr{}))
		}
	}
	w.Call("enter the user namespace", unix.SYS_SETNS, uintptr(k.ns), unix.CLONE_NEWUSER)
}

// takeDevices puts the machine's devices that the stage has over the files in /dev.
func (w *writer) takeDevices() {
	for _, d := range nodes {
		what := "/dev/" + d.name
		w.Call(what, unix.SYS_OPEN_TREE, keptParts, w.Text(stageDev+"/"+d.name), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		w.Result(0)
		w.Call(what, unix.SYS_MOVE_MOUNT, 0, w.empty, spawn.Here, w.Text(what), unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
}

// attach puts a part of a container in a place that is there.
func (w *writer) attach(what string, s source, to string) {
	if s.fd >= 0 {
		w.move(what, s.fd, to)
		return
	}
	w.Call(what, unix.SYS_MOUNT, w.Text(stageHost+s.path), w.Text(to), 0, unix.MS_BIND, 0)
}

// openBind opens the source of a bind in the parts, as keptTree.
func (w *writer) openBind(what string, b bind) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	w.Call(what, unix.SYS_OPENAT2, keptParts, w.Text(stageHost+b.path),
		w.Bytes(unsafe.Slice((*byte)(unsafe.Pointer(&how)), unsafe.Sizeof(how))), unsafe.Sizeof(how))
	w.Result(0)
	w.Call(what, unix.SYS_DUP3, 0, keptSource, unix.O_CLOEXEC)
	w.Call(what, unix.SYS_OPEN_TREE, keptSource, w.empty, unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	w.Result(0)
	w.Call(what, unix.SYS_DUP3, 0, keptTree, unix.O_CLOEXEC)
	w.close(what, keptTree, b.readOnly)
}

// close takes from a detached mount what no bind has.
func (w *writer) close(what string, fd int, readOnly bool) {
	attr := uint64(unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID)
	if readOnly {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	w.Call(what, unix.SYS_MOUNT_SETATTR, uintptr(fd), w.empty, unix.AT_EMPTY_PATH, w.attr(attr), unsafe.Sizeof(unix.MountAttr{}))
}

// attr are attributes of a mount.
func (w *writer) attr(set uint64) uintptr { return w.attrOf(unix.MountAttr{Attr_set: set}) }

func (w *writer) attrOf(attr unix.MountAttr) uintptr {
	return w.Bytes(unsafe.Slice((*byte)(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)))
}

// rootOptions of the overlay that is the root of a container.
func rootOptions(s *container.Spec, h *sources) string {
	var lower []string
	for i := range h.layers {
		lower = append(lower, stageLayer(i))
	}
	if s.Base == container.BaseHost {
		lower = append(lower, stageBase)
	}
	return ownOptions(s, lower, "", len(h.pieces))
}

// mostOptions bounds the options of a mount, in bytes: the kernel cuts them there, in silence.
const mostOptions = 4095

// fitting refuses a container of which an overlay has more options than the kernel takes: the path of
// a piece stands there once for each layer.
func fitting(s *container.Spec, h *sources) error {
	for i, p := range h.pieces {
		if n := len(pieceOptions(s, h, i)); n > mostOptions {
			return &process.InvalidError{Field: "layers",
				Reason: fmt.Sprintf("are %d; those that have something in %s make %d bytes of mount options, and the kernel takes %d; give fewer",
					len(s.Layers), p.path, n, mostOptions)}
		}
	}
	return nil
}

// pieceOptions of the overlay of a piece.
func pieceOptions(s *container.Spec, h *sources, i int) string {
	p := &h.pieces[i]
	var lower []string
	for _, l := range p.lowers {
		lower = append(lower, stageLayer(l)+p.path)
	}
	if p.host {
		if p.own {
			lower = append(lower, stageBase+p.path)
		}
		lower = append(lower, p.at)
	}
	return ownOptions(s, lower, p.path, i)
}

func ownOptions(s *container.Spec, lower []string, path string, work int) string {
	o := overlay.Spec{Lower: lower, Upper: stageOwn + "/up" + path, Work: workDir(stageOwn, work), User: true, Volatile: s.Volatile}
	return o.Options()
}

// closeProc shuts what in /proc is the machine's. Most of it the user namespace keeps
// closed already.
func (m *Maker) closeProc(l *spawn.List) {
	for _, p := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/pressure"} {
		path := l.Text(p)
		l.Try(unix.SYS_MOUNT, path, path, 0, unix.MS_BIND, 0)
		l.Try(unix.SYS_MOUNT, path, path, 0, unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, 0)
	}
	bootID(l)
	null := l.Text("/dev/null")
	for _, p := range procfs.OfTheMachine {
		l.Try(unix.SYS_MOUNT, null, l.Text(p), 0, unix.MS_BIND, 0)
	}
}

// bootID gives the container a boot ID of its own, as each start of a machine has: a file in memory
// over the kernel's. It stays as long as the container, over pauses and deaths of the keeper; the
// next container of the same sandbox has another.
func bootID(l *spawn.List) {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	id := fmt.Sprintf("%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	file, over := l.Text("/run/boot_id"), l.Text("/proc/sys/kernel/random/boot_id")
	l.Call("umask", unix.SYS_UMASK, 0)
	l.Call("make the boot ID", unix.SYS_OPENAT, spawn.Here, file, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o444)
	l.Result(0)
	l.Call("write the boot ID", unix.SYS_WRITE, 0, l.Text(id), uintptr(len(id)))
	l.Try(unix.SYS_MOUNT, file, over, 0, unix.MS_BIND, 0)
	l.Try(unix.SYS_MOUNT, file, over, 0, unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, 0)
	l.Call("remove the name of the boot ID", unix.SYS_UNLINKAT, spawn.Here, file, 0)
}

// target makes the place of a bind.
func (m *Maker) target(l *spawn.List, b bind) {
	for i := 1; i < len(b.target); i++ {
		if b.target[i] == '/' {
			l.Try(unix.SYS_MKDIRAT, spawn.Here, l.Text(b.target[:i]), 0o755)
		}
	}
	if b.isDir {
		l.Try(unix.SYS_MKDIRAT, spawn.Here, l.Text(b.target), 0o755)
	} else {
		l.Try(unix.SYS_MKNODAT, spawn.Here, l.Text(b.target), unix.S_IFREG|0o644, 0)
	}
}
