//go:build linux && (amd64 || arm64)

package cell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/newfs"
	"github.com/tend-run/tend/internal/lib/overlay"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

// parts is what all boxes share, made when the first one needs it and kept by
// descriptors: a death of the keeper takes it away, and no box that is there needs it.
type parts struct {
	state string // the state directory
	dir   string // below it, for a program that may not lie in memory; the stage is made over it

	mu    sync.Mutex
	first int          // the program of pid 1; guarded by mu
	void  int          // a network namespace in which nothing is; guarded by mu
	root  int          // a detached tree of the machine's root alone; guarded by mu
	users []*userParts // newest first; guarded by mu
	own   []*rootless  // of a keeper that is not root, newest first; guarded by mu

	accounts accountsState // for which the masks were made; guarded by mu
}

// userParts belong to boxes with the same ids.
type userParts struct {
	uid    uint32
	ns     int     // user namespace
	stages []stage // newest first
}

// stage is one for boxes that are over this machine's root and hide the same, or for those
// that bring a root of their own.
type stage struct {
	base box.Base
	hide []string
	ns   int // mount namespace
}

// mostUsers and mostBases bound what is kept. What falls out is made again at need: the kernel
// takes it away once no box is being made from it, and those that were made need it no more.
const (
	mostUsers = 32
	mostBases = 4
)

func newParts(state, dir string) *parts {
	return &parts{state: state, dir: dir, first: -1, void: -1, root: -1}
}

// kit are descriptors for one box, the caller's own.
type kit struct{ first, void, ns, stage int }

// newKit returns copies of these.
func newKit(first, void, ns, stage int) (*kit, error) {
	fds := [...]int{first, void, ns, stage}
	for i, fd := range fds {
		var err error
		if fds[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			unixsock.Close(fds[:i])
			return nil, err
		}
	}
	return &kit{fds[0], fds[1], fds[2], fds[3]}, nil
}

func (k *kit) close() { unixsock.Close([]int{k.first, k.void, k.ns, k.stage}) }

// kitFor returns what a box with this spec needs.
func (p *parts) kitFor(s *box.Spec) (*kit, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renew()
	if err := p.common(); err != nil {
		return nil, err
	}
	u, err := p.user(s.UIDBase)
	if err != nil {
		return nil, err
	}
	stage, err := p.stage(u, s)
	if err != nil {
		return nil, err
	}
	return newKit(p.first, p.void, u.ns, stage)
}

// common makes what does not depend on ids. p.mu is held.
func (p *parts) common() (err error) {
	if err := p.program(); err != nil {
		return err
	}
	if p.void < 0 {
		if p.void, err = emptyNet(); err != nil {
			return fmt.Errorf("a network namespace: %w: %w", err, process.ErrUnsupported)
		}
	}
	return nil
}

// program opens that of pid 1. p.mu is held.
func (p *parts) program() (err error) {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	if p.first < 0 {
		if p.first, err = openFirst(p.dir); err != nil {
			p.first = -1
			return err
		}
	}
	return nil
}

// user returns what belongs to boxes of these ids. p.mu is held.
func (p *parts) user(uid uint32) (*userParts, error) {
	if i := slices.IndexFunc(p.users, func(u *userParts) bool { return u.uid == uid }); i >= 0 {
		return p.users[i], nil
	}
	ns, err := userNamespace(p.first, uid)
	if err != nil {
		return nil, fmt.Errorf("a user namespace: %w%s: %w", err, whyNoUsers(err), process.ErrUnsupported)
	}
	u := &userParts{uid: uid, ns: ns}
	p.users = slices.Insert(p.users, 0, u)
	if len(p.users) > mostUsers {
		p.users[mostUsers].close()
		p.users = p.users[:mostUsers]
	}
	return u, nil
}

// whyNoUsers says what usually keeps a user namespace from being made.
func whyNoUsers(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return " (the sysctl user.max_user_namespaces is 0, or there are as many)"
	case errors.Is(err, unix.EPERM):
		return " (tend runs in a chroot, or what it runs in forbids them: a container's filter, or the sysctl kernel.unprivileged_userns_clone)"
	}
	return ""
}

func (u *userParts) close() {
	unix.Close(u.ns)
	for _, st := range u.stages {
		unix.Close(st.ns)
	}
}

// stage returns that of a box. p.mu is held.
func (p *parts) stage(u *userParts, s *box.Spec) (ns int, err error) {
	hide := s.Hide
	if s.Base == box.BaseNone {
		hide = nil // there is nothing of the machine's
	}
	if i := slices.IndexFunc(u.stages, func(st stage) bool { return st.base == s.Base && slices.Equal(st.hide, hide) }); i >= 0 {
		return u.stages[i].ns, nil
	}
	dev, err := devices(int(u.uid))
	if err != nil {
		why := ""
		if errors.Is(err, unix.EPERM) {
			why = " (tend is root of a user namespace alone, as in a rootless container, or may make no devices; run it as the machine's root)"
		}
		return -1, fmt.Errorf("/dev of sandboxes: %w%s: %w", err, why, process.ErrUnsupported)
	}
	defer unix.Close(dev)
	base := -1
	if s.Base == box.BaseHost {
		if base, err = p.base(u, hide); err != nil {
			return -1, err
		}
		defer unix.Close(base)
	}
	if ns, err = newStage(u.ns, p.first, p.dir, dev, base); err != nil {
		return -1, fmt.Errorf("the stage of sandboxes: %w", err)
	}
	u.stages = slices.Insert(u.stages, 0, stage{s.Base, slices.Clone(hide), ns})
	if len(u.stages) > mostBases {
		unix.Close(u.stages[mostBases].ns)
		u.stages = u.stages[:mostBases]
	}
	return ns, nil
}

// base returns a detached overlay of the machine's root without what is hidden. p.mu is held.
func (p *parts) base(u *userParts, hide []string) (fd int, err error) {
	var fs unix.Statfs_t
	if unix.Statfs("/", &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return -1,
			fmt.Errorf("the root of this machine is an overlay itself, as in a container: a sandbox over it cannot be had; use a template with a root of its own: %w", process.ErrUnsupported)
	}
	if p.root < 0 {
		if p.root, err = unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err != nil {
			p.root = -1
			return -1, fmt.Errorf("a copy of the root: %w: %w", err, process.ErrUnsupported)
		}
	}
	if hide, err = p.hidden(hide); err != nil {
		return -1, err
	}
	layer, err := newMask(p.root, int(u.uid), hide)
	if err != nil {
		return -1, err
	}
	defer unix.Close(layer)
	root, err := tree("/", u.ns, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	if fd, err = overlayOf(p.dir, layer, root); err != nil {
		return -1, fmt.Errorf("an overlay of this machine's root (Linux 5.19): %w: %w", err, process.ErrUnsupported)
	}
	return fd, nil
}

// hidden are all paths that boxes do not see of the machine, which are to hide these, too.
func (p *parts) hidden(hide []string) ([]string, error) {
	state, err := filepath.EvalSymlinks(p.state)
	all := slices.Concat(box.Hidden(), hide, []string{p.state, state})
	return slices.DeleteFunc(all, func(h string) bool { return h == "/" }), err
}

// overlayOf returns a detached overlay of two detached mounts: a mask, and the root below it. A
// child mounts it, in a mount namespace of its own, where they are attached: before Linux 6.15
// there is no overlay of what is not, and no copy. dir is a directory of the keeper's.
func overlayOf(dir string, layer, root int) (int, error) {
	l, err := spawn.NewSharingList(24, 8<<10+len(dir))
	if err != nil {
		return -1, err
	}
	defer l.Close()
	w := writeStage(l, "mode=755,size=64k")
	w.Call("make a mount namespace", unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	w.begin(dir)
	w.attach("mask", layer)
	w.attach("root", root)
	o := overlay.Spec{Lower: append(maskLayers("mask"), "root")}
	w.mkdir("merged")
	merged := w.Text("merged")
	w.Call("mount the overlay", unix.SYS_MOUNT, w.none, merged, w.Text("overlay"), unix.MS_RDONLY|unix.MS_NODEV, w.Text(o.Options()))
	w.Call("copy the overlay", unix.SYS_OPEN_TREE, spawn.Here, merged, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	fd := l.Keep()
	w.Call("end", unix.SYS_EXIT, 0)
	runtime.LockOSThread() // the child ends with the thread that made it
	defer runtime.UnlockOSThread()
	if err := l.Run(-1); err != nil {
		return -1, err
	}
	return int(*fd), nil
}

// cloneOf returns a detached copy of what a descriptor shows, in a mount that is attached.
func cloneOf(fd int) (int, error) {
	return unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

// mapIDs has a detached mount show the ids of a user namespace.
func mapIDs(fd, ns int, attr uint64) error {
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | attr, Userns_fd: uint64(ns)})
}

// tree returns a detached copy of a directory or file, with the ids of a user
// namespace.
func tree(path string, ns int, attr uint64) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	return mapped(fd, path, ns, attr)
}

// plainTree is tree of a path without symbolic links: a program inside may have made
// them, in what it was given to write.
func plainTree(path string, ns int, attr uint64) (int, error) {
	at, err := openPlain(path)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(at)
	fd, err := cloneOf(at)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	return mapped(fd, path, ns, attr)
}

func openPlain(path string) (fd int, err error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	return eintr.Get(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, path, how) })
}

// copied is mapped for a copy of the descriptor, of the same mount.
func copied(fd int, path string, ns int, attr uint64) (int, error) {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1, err
	}
	return mapped(fd, path, ns, attr)
}

// mapped is the detached mount fd with the ids of a user namespace.
func mapped(fd int, path string, ns int, attr uint64) (int, error) {
	if err := mapIDs(fd, ns, attr); err != nil {
		unix.Close(fd)
		why := ""
		if err == unix.ENOSYS {
			why = ", Linux 5.19"
		}
		return -1, fmt.Errorf("%s: its filesystem cannot show other ids (idmapped mounts%s): %w: %w", path, why, err, process.ErrUnsupported)
	}
	return fd, nil
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

// deviceLinks are those in /dev.
var deviceLinks = [][2]string{{"ptmx", "pts/ptmx"}, {"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"},
	{"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"}}

// devices returns a detached filesystem with the few devices that programs need. They belong to
// root inside, whose id outside is root. Nobody can write to it once it is made.
func devices(root int) (fd int, err error) {
	if fd, err = newfs.Mount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "mode=755", fmt.Sprintf("uid=%d", root),
		fmt.Sprintf("gid=%d", root)); err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	for name, d := range map[string]struct {
		major, minor uint32
		gid          int
	}{"null": {1, 3, 0}, "zero": {1, 5, 0}, "full": {1, 7, 0}, "random": {1, 8, 0}, "urandom": {1, 9, 0}, "tty": {5, 0, 5}} {
		if err := unix.Mknodat(fd, name, unix.S_IFCHR, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return -1, err
		}
		if err := unix.Fchmodat(fd, name, 0o666, 0); err != nil {
			return -1, err
		}
		if err := unix.Fchownat(fd, name, root, root+d.gid, 0); err != nil {
			return -1, err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := errors.Join(unix.Mkdirat(fd, name, 0o755), unix.Fchownat(fd, name, root, root, 0)); err != nil {
			return -1, err
		}
	}
	for _, link := range deviceLinks {
		if err := unix.Symlinkat(link[1], fd, link[0]); err != nil {
			return -1, err
		}
	}
	pick, err := unix.Fspick(fd, "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pick)
	if err := unix.FsconfigSetFlag(pick, "ro"); err != nil {
		return -1, err
	}
	return fd, unix.FsconfigReconfigure(pick)
}

// emptied removes what the kernel left in the work directory of an overlay: a volatile
// one refuses a former one's.
func emptied(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if err := removeAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return err
}

// overlayOptions for a box. top: over its layers there is the directory "up" of another box.
func overlayOptions(s *box.Spec, top bool) string {
	lower := make([]string, 0, len(s.Layers)+2)
	if top {
		lower = append(lower, stageLayer(0)+"/up")
	}
	for range s.Layers {
		lower = append(lower, stageLayer(len(lower)))
	}
	if s.Base == box.BaseHost {
		lower = append(lower, stageBase)
	}
	o := overlay.Spec{Lower: lower, Upper: stageOwn + "/up", Work: stageOwn + "/wk", User: true, Volatile: s.Volatile}
	return o.Options()
}
