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
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/eintr"
	"github.com/tend-run/tend/internal/overlay"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/box"
)

// parts is what all boxes share, made when the first one needs it and kept by
// descriptors: a death of the keeper takes it away, and no box that is there needs it.
type parts struct {
	state string // the state directory
	dir   string // below it, for a program that may not lie in memory; the stage is made over it

	mu    sync.Mutex
	first int          // the program of pid 1; guarded by mu
	void  int          // a network namespace in which nothing is; guarded by mu
	dev   int          // a detached /dev; guarded by mu
	root  int          // a detached tree of the machine's root alone; guarded by mu
	users []*userParts // newest first; guarded by mu
	own   []*rootless  // of a keeper that is not root, newest first; guarded by mu

	accounts accountsState // for which the masks were made; guarded by mu
}

// userParts belong to boxes with the same ids.
type userParts struct {
	uid   uint32
	ns    int // user namespace
	stage int // mount namespace
	dev   int // parts.dev with these ids
	bases []base
}

// base is a detached overlay of the machine's root below a mask.
type base struct {
	hide []string
	fd   int
}

// mostUsers and mostBases bound what is kept. What falls out is made anew at need.
const (
	mostUsers = 32
	mostBases = 4
)

func newParts(state, dir string) *parts {
	return &parts{state: state, dir: dir, first: -1, void: -1, dev: -1, root: -1}
}

// kit are descriptors for one box, the caller's own.
type kit struct{ first, void, ns, stage, dev, base int }

func (k *kit) close() {
	for _, fd := range []int{k.first, k.void, k.ns, k.stage, k.dev, k.base} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// take returns what a box with this spec needs.
func (p *parts) take(s *box.Spec) (_ *kit, err error) {
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
	k := &kit{-1, -1, -1, -1, -1, -1}
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	if s.Base == box.BaseHost {
		fd, err := p.base(u, s.Hide)
		if err != nil {
			return nil, err
		}
		if k.base, err = cloneOf(fd); err != nil {
			return nil, fmt.Errorf("a copy of the base (Linux 6.15): %w: %w", err, process.ErrUnsupported)
		}
	}
	if k.dev, err = cloneOf(u.dev); err != nil {
		return nil, fmt.Errorf("a copy of /dev (Linux 6.15): %w: %w", err, process.ErrUnsupported)
	}
	for _, d := range []struct {
		to   *int
		from int
	}{{&k.first, p.first}, {&k.void, p.void}, {&k.ns, u.ns}, {&k.stage, u.stage}} {
		if *d.to, err = unix.FcntlInt(uintptr(d.from), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return nil, err
		}
	}
	return k, nil
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
	if p.dev < 0 {
		if p.dev, err = devices(); err != nil {
			why := ""
			if errors.Is(err, unix.EPERM) {
				why = " (tend is root of a user namespace alone, as in a rootless container, or may make no devices; run it as the machine's root)"
			}
			return fmt.Errorf("/dev of sandboxes: %w%s: %w", err, why, process.ErrUnsupported)
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
	u := &userParts{uid: uid, ns: ns, stage: -1, dev: -1}
	if u.stage, err = newStage(ns, p.first, p.dir); err != nil {
		u.close()
		return nil, fmt.Errorf("the stage of sandboxes: %w", err)
	}
	if u.dev, err = cloneOf(p.dev); err != nil {
		u.close()
		return nil, fmt.Errorf("a copy of /dev (Linux 6.15): %w: %w", err, process.ErrUnsupported)
	}
	if err = mapIDs(u.dev, ns, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC); err != nil {
		u.close()
		return nil, fmt.Errorf("/dev of sandboxes: %w: %w", err, process.ErrUnsupported)
	}
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
	for _, fd := range []int{u.ns, u.stage, u.dev} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	for _, b := range u.bases {
		unix.Close(b.fd)
	}
}

// base returns the machine's root without what is hidden. p.mu is held.
func (p *parts) base(u *userParts, hide []string) (fd int, err error) {
	if i := slices.IndexFunc(u.bases, func(b base) bool { return slices.Equal(b.hide, hide) }); i >= 0 {
		return u.bases[i].fd, nil
	}
	var fs unix.Statfs_t
	if unix.Statfs("/", &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return -1, fmt.Errorf("the root of this machine is an overlay itself, as in a container: a sandbox over it cannot be had; use a template with a root of its own: %w", process.ErrUnsupported)
	}
	if p.root < 0 {
		if p.root, err = unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err != nil {
			p.root = -1
			return -1, fmt.Errorf("a copy of the root: %w: %w", err, process.ErrUnsupported)
		}
	}
	state, err := filepath.EvalSymlinks(p.state)
	if err != nil {
		return -1, err
	}
	all := slices.Concat(box.Hidden(), hide, []string{p.state, state})
	layer, err := newMask(p.root, slices.DeleteFunc(all, func(h string) bool { return h == "/" }))
	if err != nil {
		return -1, err
	}
	defer unix.Close(layer)
	if err := mapIDs(layer, u.ns, 0); err != nil {
		return -1, fmt.Errorf("ids of the mask: %w: %w", err, process.ErrUnsupported)
	}
	root, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	if err := mapIDs(root, u.ns, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV); err != nil {
		return -1, fmt.Errorf("the filesystem of the root cannot show other ids (idmapped mounts): %w: %w", err, process.ErrUnsupported)
	}
	if fd, err = overlayOf(layer, root); err != nil {
		return -1, fmt.Errorf("an overlay by descriptors (Linux 6.13): %w: %w", err, process.ErrUnsupported)
	}
	u.bases = slices.Insert(u.bases, 0, base{slices.Clone(hide), fd})
	if len(u.bases) > mostBases {
		unix.Close(u.bases[mostBases].fd)
		u.bases = u.bases[:mostBases]
	}
	return fd, nil
}

// overlayOf returns a detached overlay of these, the topmost first.
func overlayOf(layers ...int) (int, error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for _, l := range layers {
		if err := unix.FsconfigSetFd(fs, "lowerdir+", l); err != nil {
			return -1, err
		}
	}
	if err := overlay.Settings(func(name, value string) error { return unix.FsconfigSetString(fs, name, value) }); err != nil {
		return -1, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV)
}

// cloneOf returns a detached copy of a detached mount.
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
	at, err := eintr.Get(func() (int, error) {
		return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	})
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

// mapped is the detached mount fd with the ids of a user namespace.
func mapped(fd int, path string, ns int, attr uint64) (int, error) {
	if err := mapIDs(fd, ns, attr); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%s: its filesystem cannot show other ids (idmapped mounts): %w: %w", path, err, process.ErrUnsupported)
	}
	return fd, nil
}

// userNamespace returns one in which 0 to box.IDs-1 are uid and up outside. Its
// maker is a child that lives until the namespace is open.
func userNamespace(program int, uid uint32) (int, error) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(uid), Size: box.IDs}}
	runtime.LockOSThread() // the child ends with the thread that made it
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", program), []string{firstName, firstNoNet}, &syscall.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Pdeathsig: syscall.SIGKILL,
	}})
	if err != nil {
		return -1, err
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	unix.Kill(pid, unix.SIGKILL)
	collect(pid)
	return fd, err
}

// emptyNet returns a network namespace in which nothing is configured. The thread that
// makes it goes home; if it cannot, it ends with its goroutine.
func emptyNet() (int, error) {
	type result struct {
		fd  int
		err error
	}
	out := make(chan result)
	go func() {
		runtime.LockOSThread()
		fd, home, err := -1, -1, error(nil)
		if home, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
				fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if unix.Setns(home, unix.CLONE_NEWNET) == nil {
					runtime.UnlockOSThread()
				}
			} else {
				runtime.UnlockOSThread()
			}
			unix.Close(home)
		} else {
			runtime.UnlockOSThread()
		}
		out <- result{fd, err}
	}()
	r := <-out
	return r.fd, r.err
}

// deviceLinks are those in /dev.
var deviceLinks = [][2]string{{"ptmx", "pts/ptmx"}, {"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"}}

// devices returns a detached filesystem with the few devices that programs need. Nobody
// can write to it once it is made.
func devices() (fd int, err error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "mode", "755"); err != nil {
		return -1, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	if fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0); err != nil {
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
		if err := unix.Fchownat(fd, name, 0, d.gid, 0); err != nil {
			return -1, err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
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

// overlayOptions for a box with so many layers.
func overlayOptions(s *box.Spec, layers int) string {
	lower := make([]string, 0, layers+1)
	for i := range layers {
		lower = append(lower, stageLayer(i))
	}
	if s.Base == box.BaseHost {
		lower = append(lower, stageBase)
	}
	o := overlay.Spec{Lower: lower, Upper: stageOwn + "/up", Work: stageOwn + "/wk", User: true, Volatile: s.Volatile}
	return o.Options()
}
