//go:build linux && (amd64 || arm64)

package cell

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/disk"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

// Maker makes boxes, several at once.
type Maker struct {
	dir    string // of the files
	groups *cgroup.Tree
	parts  *parts
	// rootless: the keeper is not root, and so no box is.
	rootless bool

	mu   sync.Mutex
	made int // boxes so far, for the names of nests; guarded by mu

	probing sync.Mutex
	ok      bool  // one was made, to try it; guarded by probing
	noBase  error // why it was not one over this machine's root; guarded by probing
}

// NewMaker returns a Maker for a state directory. It creates nothing until the first box.
func NewMaker(stateDir string, groups *cgroup.Tree) (*Maker, error) {
	dir := filepath.Join(stateDir, Dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("sandboxes: %w", err)
	}
	parts := filepath.Join(stateDir, "run", Dir)
	return &Maker{dir: dir, groups: groups, parts: newParts(stateDir, parts), rootless: os.Geteuid() != 0}, nil
}

// namespaces that each box has of its own, beside those of users, network and cgroups.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// The steps that make namespaces, of which the machine may have no more.
const (
	stepNamespaces = "make namespaces"
	stepCgroups    = "make a namespace of cgroups"
)

// Make creates a box. Do not call other methods with the same ID meanwhile. After an error
// nothing of it is left.
func (m *Maker) Make(s *box.Spec) (*Cell, error) { return m.make(s, how{own: -1, top: -1}) }

// MakeShadow is Make for a process that is no keeper. own is what the box writes to, and s.Dir
// a path of it. Over its layers the box has the directory "up" of top, which may be the one that
// another box writes to; the other box may have the largest number of layers. Both are
// descriptors of detached mounts: they stay the caller's, and show the ids of the box from now
// on. The box ends with the thread that creates it; no keeper looks for it. Errors:
// process.ErrUnsupported: this process is not root.
func (m *Maker) MakeShadow(s *box.Spec, own, top int) (*Cell, error) {
	if m.rootless {
		return nil, fmt.Errorf("a directory over the layers, without root: %w", process.ErrUnsupported)
	}
	return m.make(s, how{own: own, top: top, mortal: true})
}

// how a box is made.
type how struct {
	own, top int  // of a shadow; else -1
	mortal   bool // it ends with the thread that makes it
}

func (m *Maker) make(s *box.Spec, how how) (_ *Cell, err error) {
	if err := m.check(s); err != nil {
		return nil, err
	}
	c := &Cell{Spec: *s, dir: m.dir, nest: m.nestName(s.ID), pidfd: -1, Active: active(s, m.groups)}
	c.Nest = m.groups.Nest(c.nest)
	f, err := createFile(m.dir, &record{state: making, boot: bootName(), nest: c.nest, spec: *s})
	if err != nil {
		return nil, fmt.Errorf("the file of a sandbox: %w", err)
	}
	defer f.close()
	defer func() {
		if err != nil {
			c.PID = int(*f.pid())
			c.undo()
		}
	}()
	failpoint.Hit(failpoint.CellIntended)
	if err := c.Nest.Make(); err != nil {
		return nil, err
	}
	if err := c.Nest.Limit(&box.Limits{}, &s.Limits); err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.CellGrouped)
	if err := m.build(s, how, c.Nest, f.pid()); err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.CellForked)
	c.PID = int(*f.pid())
	if c.pidfd, err = unix.PidfdOpen(c.PID, 0); err != nil {
		return nil, fmt.Errorf("pid 1 of a sandbox: %w", err)
	}
	if c.Started = started(c.PID); c.Started == 0 {
		return nil, fmt.Errorf("pid 1 of a sandbox has ended: %w", box.ErrEnded)
	}
	if s.UIDBase == 0 {
		if err := shown(c.PID); err != nil {
			return nil, fmt.Errorf("pid 1 of a sandbox: %w", err)
		}
	}
	f.made(c.Started)
	failpoint.Hit(failpoint.CellMade)
	return c, nil
}

// undo takes back what was done.
func (c *Cell) undo() {
	if c.PID > 0 && c.pidfd < 0 { // it is our child that nobody has collected
		c.pidfd, _ = unix.PidfdOpen(c.PID, 0)
	}
	c.kill()
	c.End(time.Now().Add(undoWait))
}

// undoWait bounds how long a box that cannot be made holds up its caller.
const undoWait = 5 * time.Second

// nestName is new for each box: a group that was killed is not used again.
func (m *Maker) nestName(id box.ID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	return fmt.Sprintf("%.8s-%x-%x", string(id), os.Getpid(), uint32(time.Now().UnixNano())+uint32(m.made))
}

// check refuses what cannot be had here.
func (m *Maker) check(s *box.Spec) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if root := os.Geteuid() == 0; root && s.UIDBase == 0 {
		return &process.InvalidError{Field: "uid_base", Reason: "is 0, which is for a tend that is not root; give the first of the sandbox's ids"}
	} else if !root && s.UIDBase != 0 {
		return &process.InvalidError{Field: "uid_base", Reason: fmt.Sprintf("is %d; a tend that is not root has one id, its own: give 0",
			s.UIDBase)}
	}
	for _, sub := range []string{"up", "wk"} {
		fi, err := os.Lstat(filepath.Join(s.Dir, sub))
		if err == nil && !fi.IsDir() {
			err = unix.ENOTDIR
		}
		if err != nil {
			return &process.InvalidError{Field: "dir", Reason: fmt.Sprintf("has no directory %q: %v", sub, err)}
		}
	}
	return nil
}

// handed are the mounts that the child puts in their places.
type handed struct {
	kit    *kit
	own    int
	layers []int
	binds  []bind
}

type bind struct {
	fd     int
	isDir  bool
	target string
}

func (h *handed) close() {
	h.kit.close()
	unixsock.Close(append(h.layers, h.own)) // which may be -1
	for _, b := range h.binds {
		unix.Close(b.fd)
	}
}

// gather opens all that a box is built from.
func (m *Maker) gather(s *box.Spec, how how) (_ *handed, err error) {
	k, err := m.parts.kitFor(s)
	if err != nil {
		return nil, err
	}
	h := &handed{kit: k, own: -1}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if h.own, err = written(s, how.own, k.ns); err != nil {
		return nil, err
	}
	const below = unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY
	if how.top >= 0 {
		fd, err := copied(how.top, "what the sandbox has written", k.ns, below)
		if err != nil {
			return nil, err
		}
		h.layers = append(h.layers, fd)
	}
	for i, l := range s.Layers {
		fd, err := tree(l, k.ns, below)
		if errors.Is(err, os.ErrNotExist) {
			return nil, &process.InvalidError{Field: fmt.Sprintf("layers[%d]", i), Reason: "does not exist"}
		}
		if err != nil {
			return nil, err
		}
		h.layers = append(h.layers, fd)
	}
	for i, b := range s.Binds {
		attr := uint64(unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID)
		if b.ReadOnly {
			attr |= unix.MOUNT_ATTR_RDONLY
		}
		fd, err := plainTree(b.Source, k.ns, attr)
		if err != nil {
			return nil, bindError(i, err)
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		h.binds = append(h.binds, bind{fd, st.Mode&unix.S_IFMT == unix.S_IFDIR, b.Target})
		if err != nil {
			return nil, bindError(i, err)
		}
	}
	return h, nil
}

// bindError says what is wrong with the source of a bind.
func bindError(i int, err error) error {
	why := ""
	switch {
	case errors.Is(err, unix.ELOOP):
		why = "has a symbolic link; give the path where it leads"
	case errors.Is(err, os.ErrNotExist):
		why = "does not exist"
	case errors.Is(err, unix.EACCES) && os.Geteuid() != 0:
		why = "is not for the user that tend runs as"
	default:
		return fmt.Errorf("binds[%d]: %w", i, err)
	}
	return &process.InvalidError{Field: fmt.Sprintf("binds[%d].source", i), Reason: why}
}

// written returns a detached mount of what the box writes to: own, unless that is -1.
func written(s *box.Spec, own, ns int) (int, error) {
	if own >= 0 {
		return copied(own, s.Dir, ns, unix.MOUNT_ATTR_NODEV)
	}
	if s.Disk == "" {
		return tree(s.Dir, ns, unix.MOUNT_ATTR_NODEV)
	}
	m, err := disk.Open(s.Disk)
	if err != nil {
		return -1, err
	}
	defer m.Close()
	for _, name := range []string{"/up", "/wk"} {
		if err := os.Mkdir(m.Path()+name, 0o755); errors.Is(err, os.ErrExist) {
			continue
		} else if err != nil {
			return -1, err
		}
		if err := os.Chmod(m.Path()+name, 0o755); err != nil { // whatever the umask is
			return -1, err
		}
	}
	if err := ready(s, m.Path()); err != nil {
		return -1, err
	}
	return mapped(m.Take(), s.Disk, ns, unix.MOUNT_ATTR_NODEV)
}

// ready prepares the directory with up and wk.
func ready(s *box.Spec, dir string) error {
	if err := emptied(dir + "/wk"); err != nil {
		return fmt.Errorf("the work directory: %w", err)
	}
	if s.Base != box.BaseNone {
		return nil
	}
	for _, name := range []string{"/proc", "/sys", "/dev", "/run"} { // another root may lack them
		if err := os.Mkdir(dir+"/up"+name, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// memory of what is not on the disk; it counts as the box's. The kernel's own limit of
// files is for each such filesystem a part of the whole machine's memory.
const (
	runOptions = "mode=755,size=64m,nr_inodes=16k"
	shmOptions = "mode=1777,size=1g,nr_inodes=64k"
	// maxTerminals: the machine has 4,096 for all (kernel.pty.max), of which it keeps 1,024 for itself.
	maxTerminals = "max=256"
)

// build has a child build the root and become pid 1.
func (m *Maker) build(s *box.Spec, how how, nest *cgroup.Nest, pid *uint32) error {
	if s.Disk == "" {
		if err := ready(s, s.Dir); err != nil {
			return err
		}
	}
	group, err := nest.OpenFirst()
	if err != nil {
		return err
	}
	if group >= 0 {
		defer unix.Close(group)
	}
	if s.UIDBase == 0 {
		return m.buildRootless(s, group, pid)
	}
	// In this group the namespace of cgroups is made, and there it begins: all groups of the
	// box are in it.
	around, err := nest.OpenAround()
	if err != nil {
		return err
	}
	if around >= 0 {
		defer unix.Close(around)
	}
	h, err := m.gather(s, how)
	if err != nil {
		return err
	}
	defer h.close()
	calls, text := 96+len(h.layers), 16<<10
	for _, b := range h.binds {
		calls += strings.Count(b.target, "/") + 4
		text += len(b.target)*(strings.Count(b.target, "/")+2) + 64
	}
	l, err := spawn.NewList(calls, text)
	if err != nil {
		return err
	}
	defer l.Close()
	m.write(l, s, h, how, group, pid)
	if err := l.Run(around); err != nil {
		return explain(err)
	}
	return nil
}

// write appends what the child does.
func (m *Maker) write(l *spawn.List, s *box.Spec, h *handed, how how, group int, pid *uint32) {
	w := newWriter(l)
	const plain = unix.MS_NOSUID | unix.MS_NODEV

	// The child that is made into the directory of the box's groups.
	if s.Net != box.NetHost {
		l.Call("enter an empty network", unix.SYS_SETNS, uintptr(h.kit.void), unix.CLONE_NEWNET)
	}
	l.Call("enter the user namespace", unix.SYS_SETNS, uintptr(h.kit.ns), unix.CLONE_NEWUSER)
	l.Call("enter the stage", unix.SYS_SETNS, uintptr(h.kit.stage), unix.CLONE_NEWNS)
	// Not by the clone: with CLONE_INTO_CGROUP the namespace begins at the child's group, and
	// what is in it may put no process into another group of the box (nsdelegate).
	l.Call(stepCgroups, unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	l.Fork(stepNamespaces, namespaces, group, pid)

	// Pid 1.
	w.beRoot()
	if how.mortal { // after that: another user has forgotten it
		l.Call("end with its maker", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	}
	w.lead(s)
	parts := l.Text(stageParts)
	l.Call("go to the parts", unix.SYS_CHDIR, parts)
	w.move("own directory", h.own, stageOwn)
	for i, fd := range h.layers {
		w.move(fmt.Sprintf("layers[%d]", i), fd, stageLayer(i))
	}
	w.mount(stageMerge, "overlay", unix.MS_NODEV, overlayOptions(s, how.top >= 0))
	l.Call("go to the root", unix.SYS_CHDIR, l.Text(stageMerge))
	w.mount("proc", "proc", plain|unix.MS_NOEXEC, "") // while the stage still has the machine's
	l.Call("/dev", unix.SYS_MOVE_MOUNT, spawn.Here, l.Text(stageParts+"/"+stageDev), spawn.Here, l.Text("dev"), 0)
	l.Call("leave the parts", unix.SYS_UMOUNT2, parts, unix.MNT_DETACH)
	w.enterRoot()

	// From here on all names are looked up inside. A root of somebody else's may have put
	// a link where /proc should be.
	l.Call("find /proc", unix.SYS_FACCESSAT, spawn.Here, l.Text("/proc/self/status"), 0)
	w.mount("/dev/shm", "tmpfs", plain, shmOptions)
	w.mount("/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5,"+maxTerminals)
	w.mount("/run", "tmpfs", plain, runOptions)
	m.closeProc(l)
	for i, b := range h.binds {
		m.target(l, b)
		w.move(fmt.Sprintf("binds[%d]", i), b.fd, b.target)
	}
	w.become(h.kit.first, s)
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

// bootID gives the box a boot ID of its own, as each start of a machine has: a file in memory
// over the kernel's. It stays as long as the box, over pauses and deaths of the keeper; the
// next box of the same sandbox has another.
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
