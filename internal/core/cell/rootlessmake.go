//go:build linux && (amd64 || arm64)

package cell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/lib/overlay"
	"github.com/tend-run/tend/process"
)

const noRootlessDisk = "a disk of its own is a filesystem in a file, which only root may mount; run tend as root"

// buildRootless is build for a keeper that is not root.
func (m *Maker) buildRootless(s *box.Spec, group int, pid *uint32) error {
	if s.Disk != "" {
		return fmt.Errorf("%s: %w", noRootlessDisk, process.ErrUnsupported)
	}
	k, all, err := m.parts.takeRootless(s)
	if err != nil {
		return err
	}
	defer k.close()
	real := *s // without links: what it names is looked up in the stage
	if real.Dir, err = filepath.EvalSymlinks(s.Dir); err != nil {
		return err
	}
	real.Layers = nil
	for i, l := range s.Layers {
		dir, err := filepath.EvalSymlinks(l)
		if errors.Is(err, os.ErrNotExist) {
			return &process.InvalidError{Field: fmt.Sprintf("layers[%d]", i), Reason: "does not exist"}
		}
		if err != nil {
			return err
		}
		real.Layers = append(real.Layers, dir)
	}
	if s.Base == box.BaseNone {
		all = nil
	}
	pieces, err := piecesFor(&real, all)
	if err != nil {
		return fmt.Errorf("the directory of a sandbox: %w", err)
	}
	if err := fitting(&real, pieces); err != nil {
		return err
	}
	if err := m.workDirs(s, len(pieces)); err != nil {
		return fmt.Errorf("the work directory: %w", err)
	}
	kinds, err := sources(s)
	if err != nil {
		return err
	}
	calls, text := 128+len(s.Layers)+len(pieces), 16<<10+2*len(real.Dir)
	for _, l := range real.Layers {
		text += len(l) + 64
	}
	for _, p := range pieces {
		text += (len(s.Layers)+6)*(len(p.path)+8) + 256
	}
	for _, b := range s.Binds {
		calls += strings.Count(b.Target, "/") + 16
		text += len(b.Target)*(strings.Count(b.Target, "/")+2) + len(b.Source) + 256
	}
	l, err := spawn.NewList(calls, text)
	if err != nil {
		return err
	}
	defer l.Close()
	m.writeBox(l, &real, k, pieces, kinds, pid)
	if err := l.Run(group); err != nil {
		return explain(err)
	}
	return nil
}

// workDirs makes an empty directory for each overlay.
func (m *Maker) workDirs(s *box.Spec, pieces int) error {
	for i := range pieces + 1 {
		if err := os.Mkdir(workDir(s.Dir, i), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// workDir of a piece; that of the root is behind the last one's.
func workDir(dir string, i int) string { return fmt.Sprintf("%s/wk/%d", dir, i) }

// sources reports for each bind whether it is of a directory.
func sources(s *box.Spec) (isDir []bool, err error) {
	for i, b := range s.Binds {
		var st unix.Stat_t
		fd, err := openPlain(b.Source)
		if err == nil {
			err = unix.Fstat(fd, &st)
			unix.Close(fd)
		}
		if err != nil {
			return nil, bindError(i, err)
		}
		isDir = append(isDir, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	}
	return isDir, nil
}

// writeBox appends what the child does. It is write, but for where the mounts come from.
func (m *Maker) writeBox(l *spawn.List, s *box.Spec, k *kit, pieces []piece, isDir []bool, pid *uint32) {
	w := newWriter(l)
	fromHost := func(what, path, to string) {
		l.Call(what, unix.SYS_MOUNT, l.Text(stageHost+path), l.Text(to), 0, unix.MS_BIND, 0)
	}
	const plain = unix.MS_NOSUID | unix.MS_NODEV

	// The child that is made into the box's group.
	l.Call("enter the user namespace", unix.SYS_SETNS, uintptr(k.ns), unix.CLONE_NEWUSER)
	if s.Net != box.NetHost {
		l.Call("enter an empty network", unix.SYS_SETNS, uintptr(k.void), unix.CLONE_NEWNET)
	}
	l.Call("enter the stage", unix.SYS_SETNS, uintptr(k.stage), unix.CLONE_NEWNS)
	l.Fork(stepNamespaces, namespaces|unix.CLONE_NEWCGROUP, -1, pid)

	// Pid 1.
	w.lead(s)
	l.Call("go to the parts", unix.SYS_CHDIR, l.Text(stageParts))
	fromHost("own directory", s.Dir, stageOwn)
	for i, dir := range s.Layers {
		fromHost(fmt.Sprintf("layers[%d]", i), dir, stageLayer(i))
	}
	w.mount(stageMerge, "overlay", unix.MS_NODEV, rootOptions(s, len(pieces)))
	for i, p := range pieces {
		w.mount(stageMerge+p.path, "overlay", unix.MS_NODEV, pieceOptions(s, p, i))
	}
	l.Call("open the parts", unix.SYS_OPENAT, spawn.Here, l.Text(stageParts), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	l.Result(0)
	l.Call("keep the parts", unix.SYS_DUP3, 0, keptParts, unix.O_CLOEXEC)
	l.Call("go to the root", unix.SYS_CHDIR, l.Text(stageMerge))
	w.enterRoot()

	// From here on all names are looked up inside. A root of somebody else's may have put
	// a link where /proc should be.
	w.mount("/proc", "proc", plain|unix.MS_NOEXEC, "") // while the stage still has the machine's
	l.Call("find /proc", unix.SYS_FACCESSAT, spawn.Here, l.Text("/proc/self/status"), 0)
	l.Call("/dev", unix.SYS_MOVE_MOUNT, keptParts, l.Text(stageDev), spawn.Here, l.Text("/dev"), 0)
	w.mount("/dev/shm", "tmpfs", plain, shmOptions)
	w.mount("/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,"+maxTerminals)
	w.mount("/run", "tmpfs", plain, runOptions)
	m.closeProc(l)
	for i, b := range s.Binds {
		m.target(l, bind{isDir: isDir[i], target: b.Target})
		what := fmt.Sprintf("binds[%d]", i)
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
		l.Call(what+".source", unix.SYS_OPENAT2, keptParts, l.Text(stageHost+b.Source),
			l.Bytes(unsafe.Slice((*byte)(unsafe.Pointer(&how)), unsafe.Sizeof(how))), unsafe.Sizeof(how))
		l.Result(0)
		l.Call(what+".source", unix.SYS_DUP3, 0, keptSource, unix.O_CLOEXEC)
		l.Call(what+".source", unix.SYS_OPEN_TREE, keptSource, w.empty, unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		l.Result(0)
		l.Call(what+".source", unix.SYS_DUP3, 0, keptTree, unix.O_CLOEXEC)
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID}
		if b.ReadOnly {
			attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		l.Call(what+".source", unix.SYS_MOUNT_SETATTR, keptTree, w.empty, unix.AT_EMPTY_PATH,
			l.Bytes(unsafe.Slice((*byte)(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))), unsafe.Sizeof(attr))
		w.move(what, keptTree, b.Target)
	}
	l.Call("go to the parts", unix.SYS_FCHDIR, keptParts)
	l.Call("leave the parts", unix.SYS_UMOUNT2, w.dot, unix.MNT_DETACH)
	l.Call("go to /", unix.SYS_CHDIR, w.root)
	w.become(k.first, s)
}

// Descriptors of pid 1 while it is made, in the places of its streams.
const (
	keptParts  = 0
	keptSource = 1
	keptTree   = 2
)

// rootOptions of the overlay that is the root of a box with so many pieces.
func rootOptions(s *box.Spec, pieces int) string {
	var lower []string
	for i := range s.Layers {
		lower = append(lower, stageLayer(i))
	}
	if s.Base == box.BaseHost {
		lower = append(lower, stageBase+maskTop)
	}
	return ownOptions(s, lower, "", pieces)
}

// mostOptions bounds the options of a mount, in bytes: the kernel cuts them there, in silence.
const mostOptions = 4095

// fitting refuses a box of which an overlay has more options than the kernel takes: the path of
// a piece stands there once for each layer.
func fitting(s *box.Spec, pieces []piece) error {
	for i, p := range pieces {
		if n := len(pieceOptions(s, p, i)); n > mostOptions {
			return &process.InvalidError{Field: "layers",
				Reason: fmt.Sprintf("are %d; those that have %s make %d bytes of mount options without root, and the kernel takes %d; give fewer, or run tend as root", len(s.Layers), p.path, n, mostOptions)}
		}
	}
	return nil
}

// pieceOptions of the overlay of a piece.
func pieceOptions(s *box.Spec, p piece, i int) string {
	var lower []string
	for _, l := range p.lowers {
		lower = append(lower, stageLayer(l)+p.path)
	}
	if p.host {
		lower = append(lower, stageBase+maskTop+p.path)
		if p.cut {
			lower = append(lower, stageBase+maskCut+p.path)
		}
		lower = append(lower, stageHost+p.path)
	}
	return ownOptions(s, lower, p.path, i)
}

func ownOptions(s *box.Spec, lower []string, path string, work int) string {
	o := overlay.Spec{Lower: lower, Upper: stageOwn + "/up" + path, Work: workDir(stageOwn, work), User: true, Volatile: s.Volatile}
	return o.Options()
}
