//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/newfs"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

// parts is what all containers share, made when the first one needs it and kept by
// descriptors: a death of the keeper takes it away, and no container that is there needs it.
type parts struct {
	state    string // the state directory
	dir      string // below it, for a program that may not lie in memory; the stage is made over it
	rootless bool   // containers have one id: they attach by paths, in a user namespace of the keeper's own
	byPath   bool   // containers have ids of nobody, and attach by paths
	owners   string // of the machine's files, if that is forced
	devices  string // those of /dev, if that is forced

	mu     sync.Mutex
	first  int          // the program of pid 1; guarded by mu
	void   int          // a network namespace in which nothing is; guarded by mu
	users  []*userParts // newest first; guarded by mu
	stages []*stage     // newest first; guarded by mu
	shifts memoryShifts // guarded by mu

	settings []settingsState // for which the skeletons were made; guarded by mu
}

// stage is one for containers that see the same of this machine, or for those that bring a root of their own.
type stage struct {
	uid        uint32 // the first id of what is in the skeleton; 0: it has the ids that are inside
	base       container.Base
	hide, show []string
	trial      bool // of ProbeID

	ns, mnt, void int // namespaces; ns and void are an ordinary user's, else -1
	mounts        int // an ordinary user's: /proc/self/mountinfo, open: it says when the mounts change
	pieces        []piece
	nobody        bool  // some of their owners are nobody inside
	bound         bool  // its devices are the machine's
	noBase        error // an ordinary user's: why there are no pieces
}

// mostUsers and mostStages bound what is kept. What falls out is made again at need: the kernel
// takes it away once no container is being made from it, and those that were made need it no more.
const (
	mostUsers  = 32
	mostStages = 32
	mostBases  = 4 // with the same ids
)

func newParts(state, dir string) *parts {
	return &parts{state: state, dir: dir, first: -1, void: -1}
}

// kit are descriptors for one container, the caller's own.
type kit struct {
	first, void, ns, stage int
	dev                    int  // a detached /dev; -1: the stage has one
	shifted                bool // the skeleton of the stage has the ids that are inside
	bound                  bool // the stage has the devices for the files in dev
}

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
	return &kit{first: fds[0], void: fds[1], ns: fds[2], stage: fds[3], dev: -1}, nil
}

func (k *kit) close() { unixsock.Close([]int{k.first, k.void, k.ns, k.stage, k.dev}) } // dev may be -1

func (p *parts) paths() bool { return p.rootless || p.byPath }

// take returns what a container with this spec needs, and the pieces that there are for it.
func (p *parts) take(s *container.Spec) (*kit, []piece, error) {
	if !p.rootless {
		if err := p.needUser(s.UIDBase); err != nil {
			return nil, nil, err
		}
	}
	k, pieces, err := p.pick(s)
	if err != nil || p.paths() {
		return k, pieces, err
	}
	way := devicesMade
	if k.bound {
		way = devicesBound
	}
	if k.dev, _, err = devices(int(s.UIDBase), way); err != nil {
		k.close()
		return nil, nil, fmt.Errorf("/dev of sandboxes: %w%s: %w", err, whyNotRoot(err), process.ErrUnsupported)
	}
	return k, pieces, nil
}

// pick is take for what is kept.
func (p *parts) pick(s *container.Spec) (*kit, []piece, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renew()
	if err := p.program(); err != nil {
		return nil, nil, err
	}
	ns := -1
	if !p.rootless {
		var err error
		if ns, err = p.user(s.UIDBase); err != nil {
			return nil, nil, err
		}
	}
	st, err := p.stage(s, ns)
	if err != nil {
		return nil, nil, err
	}
	if p.rootless {
		ns = st.ns
	}
	if s.Base != container.BaseNone && st.noBase != nil {
		return nil, nil, st.noBase
	}
	k, err := newKit(p.first, st.void, ns, st.mnt)
	if err != nil {
		return nil, nil, err
	}
	k.shifted, k.bound = !p.paths() && st.uid == 0, !p.paths() && st.bound
	if s.Base == container.BaseNone {
		return k, nil, nil
	}
	return k, st.pieces, nil
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

// renew forgets the stages that were made for other settings than the machine has now, and those
// whose pieces have been replaced. p.mu is held.
func (p *parts) renew() {
	now := settingsNow()
	same := slices.Equal(now, p.settings)
	p.settings = now
	p.stages = slices.DeleteFunc(p.stages, func(st *stage) bool {
		if same && !st.changed() || st.base == container.BaseNone && !p.paths() {
			return false
		}
		st.close(p)
		return true
	})
}

// changed reports whether a stage shows another machine than this: the kernel lets an ordinary user
// make no overlay over a new mount, and a directory that was replaced is empty for ever.
func (st *stage) changed() bool {
	if st.mounts >= 0 {
		n, err := eintr.Get(func() (int, error) {
			return unix.Poll([]unix.PollFd{{Fd: int32(st.mounts), Events: unix.POLLPRI}}, 0)
		})
		if err == nil && n > 0 {
			return true
		}
	}
	return slices.ContainsFunc(st.pieces, func(p piece) bool {
		var now unix.Stat_t
		return unix.Stat(p.from, &now) != nil || uint64(now.Dev) != p.dev || now.Ino != p.ino
	})
}

// close lets go of what is the stage's own.
func (st *stage) close(p *parts) {
	unixsock.Close([]int{st.mnt, st.mounts}) // one may be -1
	if p.paths() {
		unixsock.Close([]int{st.ns, st.void})
	}
}

// forgetTrials lets go of the stages of ProbeID.
func (p *parts) forgetTrials() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stages = slices.DeleteFunc(p.stages, func(st *stage) bool {
		if st.trial {
			st.close(p)
		}
		return st.trial
	})
}

// shows says how the stages are that there are: some of the machine's files are nobody's in one, and
// in one the devices are the machine's.
func (p *parts) shows() (nobody, bound bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, st := range p.stages {
		nobody, bound = nobody || st.nobody, bound || st.bound
	}
	return nobody, bound
}

// fits reports whether a container may begin in the stage.
func (st *stage) fits(p *parts, s *container.Spec) bool {
	switch {
	case st.trial != (s.ID == ProbeID):
		return false
	case s.Base == container.BaseNone:
		return p.rootless || p.byPath && st.uid == s.UIDBase || st.base == container.BaseNone
	}
	return st.uid == p.firstID(s) && st.base == container.BaseHost && slices.Equal(st.hide, s.Hide) && slices.Equal(st.show, s.Show)
}

// firstID is the first id of what is in the skeleton of a container. p.mu is held.
func (p *parts) firstID(s *container.Spec) uint32 {
	if p.shifts == shiftsAny {
		return 0
	}
	return s.UIDBase
}

// stage finds or makes that of a container with a user namespace. p.mu is held.
func (p *parts) stage(s *container.Spec, ns int) (st *stage, err error) {
	if !p.paths() && p.shifts == shiftsUnknown {
		if p.shifts, err = shiftsOfMemory(ns); err != nil {
			return nil, fmt.Errorf("the skeleton of sandboxes: %w", err)
		}
	}
	if i := slices.IndexFunc(p.stages, func(st *stage) bool { return st.fits(p, s) }); i >= 0 {
		return p.stages[i], nil
	}
	st = &stage{uid: p.firstID(s), base: s.Base, hide: slices.Clone(s.Hide), show: slices.Clone(s.Show), trial: s.ID == ProbeID,
		ns: -1, mnt: -1, void: -1, mounts: -1}
	if p.paths() {
		st.base = container.BaseHost
		err = p.makeRootless(st)
	} else {
		err = p.make(st, ns)
	}
	if err != nil {
		st.close(p)
		return nil, err
	}
	p.stages = slices.Insert(p.stages, 0, st)
	alike := 0
	p.stages = slices.DeleteFunc(p.stages, func(old *stage) bool {
		if old.uid == st.uid {
			alike++
		}
		if alike <= mostBases || old.uid != st.uid {
			return false
		}
		old.close(p)
		return true
	})
	for len(p.stages) > mostStages {
		p.stages[mostStages].close(p)
		p.stages = p.stages[:mostStages]
	}
	return st, nil
}

// make makes a stage for containers of which this process, as root, attaches the parts. It belongs to no
// user namespace of theirs. ns is that of one of them. p.mu is held.
func (p *parts) make(st *stage, ns int) (err error) {
	if p.void < 0 {
		if p.void, err = emptyNet(); err != nil {
			p.void = -1
			return fmt.Errorf("a network namespace: %w%s: %w", err, whyNotRoot(err), process.ErrUnsupported)
		}
	}
	st.void = p.void
	dev, bound, err := devices(0, p.devices)
	if err != nil {
		return fmt.Errorf("/dev of sandboxes: %w%s: %w", err, whyNotRoot(err), process.ErrUnsupported)
	}
	unix.Close(dev)
	base := -1
	if st.base == container.BaseHost {
		if base, err = newfs.Mount("tmpfs", 0, "mode=755", "size=256m"); err != nil {
			return fmt.Errorf("the skeleton of sandboxes: %w", err)
		}
		defer unix.Close(base)
		k := newSkeleton(fmt.Sprintf("/proc/self/fd/%d", base), int(st.uid), false)
		err = k.fill(p.state, st, func(q *piece, i int) error {
			q.at = fmt.Sprint("p", i)
			q.nobody = p.owners == ownersNobody
			fd, err := p.attach(q, ns)
			if err == nil {
				unix.Close(fd)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	st.bound = bound
	if st.mnt, err = newStage(p.first, p.dir, base, st.pieces, bound); err != nil {
		return fmt.Errorf("the stage of sandboxes: %w", err)
	}
	return nil
}

// attach returns a detached mount of a piece, with the ids that are inside, if its filesystem can.
func (p *parts) attach(q *piece, ns int) (int, error) {
	const attr = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV
	fd, err := unix.OpenTree(unix.AT_FDCWD, q.from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", q.from, err)
	}
	if !q.nobody {
		err = mapIDs(fd, ns, attr)
		q.nobody = err == unix.EINVAL && p.owners != ownersIDMap // an overlay, say
	}
	if q.nobody {
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attr})
	}
	if err != nil {
		unix.Close(fd)
		why := ""
		if err == unix.ENOSYS {
			why = " (Linux 5.19)"
		}
		return -1, fmt.Errorf("%s of sandboxes%s: %w: %w", q.path, why, err, process.ErrUnsupported)
	}
	return fd, nil
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

// deviceLinks are those in /dev.
var deviceLinks = [][2]string{{"ptmx", "pts/ptmx"}, {"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"},
	{"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"}}

// device is one of the few that programs need. Its group is inside.
type device struct {
	name         string
	major, minor uint32
	gid          int
}

var nodes = []device{{"null", 1, 3, 0}, {"zero", 1, 5, 0}, {"full", 1, 7, 0}, {"random", 1, 8, 0}, {"urandom", 1, 9, 0}, {"tty", 5, 0, 5}}

// devices returns a detached filesystem with the devices. They belong to root inside, whose id outside
// is root. Nobody can write to it once it is made. bound: this process may make no nodes, and the
// machine's are to be bound over files. way: "", or what of the two is to be.
func devices(root int, way string) (fd int, bound bool, err error) {
	if fd, err = newfs.Mount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "mode=755", fmt.Sprintf("uid=%d", root),
		fmt.Sprintf("gid=%d", root)); err != nil {
		return -1, false, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	bound = way == devicesBound
	for _, d := range nodes {
		err := error(unix.EPERM)
		if !bound {
			err = unix.Mknodat(fd, d.name, unix.S_IFCHR, int(unix.Mkdev(d.major, d.minor)))
		}
		if bound = err == unix.EPERM && way != devicesMade; bound {
			err = unix.Mknodat(fd, d.name, unix.S_IFREG, 0)
		}
		if err != nil {
			return -1, bound, err
		}
		if err := unix.Fchmodat(fd, d.name, 0o666, 0); err != nil {
			return -1, bound, err
		}
		if err := unix.Fchownat(fd, d.name, root, root+d.gid, 0); err != nil {
			return -1, bound, err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := errors.Join(unix.Mkdirat(fd, name, 0o755), unix.Fchownat(fd, name, root, root, 0)); err != nil {
			return -1, bound, err
		}
	}
	for _, link := range deviceLinks {
		if err := unix.Symlinkat(link[1], fd, link[0]); err != nil {
			return -1, bound, err
		}
	}
	pick, err := unix.Fspick(fd, "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return -1, bound, err
	}
	defer unix.Close(pick)
	if err := unix.FsconfigSetFlag(pick, "ro"); err != nil {
		return -1, bound, err
	}
	return fd, bound, unix.FsconfigReconfigure(pick)
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
