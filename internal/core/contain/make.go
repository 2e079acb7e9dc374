//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

// Maker makes containers, several at once.
type Maker struct {
	dir    string // of the files
	groups *cgroup.Tree
	parts  *parts
	forced way

	finding  sync.Mutex
	found    bool   // rootless is known; guarded by finding
	rootless bool   // containers have one id, the keeper's own; not changed after found
	byPath   bool   // containers have ids of nobody, and attach by paths; not changed after found
	proc     string // where containers get their /proc from; guarded by finding

	mu   sync.Mutex
	made int // containers so far, for the names of nests; guarded by mu

	probing sync.Mutex
	ok      bool   // one was made, to try it; guarded by probing
	noBase  error  // why it was not one over this machine's root; guarded by probing
	way     string // in which it was made; guarded by probing
}

// NewMaker returns a Maker for a state directory. It creates nothing until the first container.
func NewMaker(stateDir string, groups *cgroup.Tree) (*Maker, error) {
	dir := filepath.Join(stateDir, Dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("sandboxes: %w", err)
	}
	parts := filepath.Join(stateDir, "run", Dir)
	return &Maker{dir: dir, groups: groups, parts: newParts(stateDir, parts)}, nil
}

// namespaces that each container has of its own, beside those of users, network and cgroups.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// The steps that make namespaces, of which the machine may have no more.
const (
	stepNamespaces = "make namespaces"
	stepCgroups    = "make a namespace of cgroups"
)

// Make creates a container. Do not call other methods with the same ID meanwhile. After an error
// nothing of it is left.
func (m *Maker) Make(s *container.Spec) (*Container, error) {
	if err := m.find(); err != nil {
		return nil, explain(err)
	}
	if err := m.check(s); err != nil {
		return nil, err
	}
	for {
		proc := m.procWay()
		c, err := m.makeThus(s, proc)
		if err == nil || !m.otherProc(proc, err) {
			return c, err
		}
	}
}

func (m *Maker) makeThus(s *container.Spec, proc string) (_ *Container, err error) {
	c := &Container{Spec: *s, dir: m.dir, nest: m.nestName(s.ID), pidfd: -1, Active: active(s, m.groups)}
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
	failpoint.Hit(failpoint.ContainerIntended)
	if err := c.Nest.Make(); err != nil {
		return nil, err
	}
	if err := c.Nest.Limit(&container.Limits{}, &s.Limits); err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.ContainerGrouped)
	if err := m.build(s, proc, c.Nest, f.pid()); err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.ContainerForked)
	c.PID = int(*f.pid())
	if c.pidfd, err = unix.PidfdOpen(c.PID, 0); err != nil {
		return nil, fmt.Errorf("pid 1 of a sandbox: %w", err)
	}
	if c.Started = started(c.PID); c.Started == 0 {
		return nil, fmt.Errorf("pid 1 of a sandbox has ended: %w", container.ErrEnded)
	}
	if err := shown(c.PID); err != nil {
		return nil, fmt.Errorf("pid 1 of a sandbox: %w", err)
	}
	f.made(c.Started)
	failpoint.Hit(failpoint.ContainerMade)
	return c, nil
}

// undo takes back what was done.
func (c *Container) undo() {
	if c.PID > 0 && c.pidfd < 0 { // it is our child that nobody has collected
		c.pidfd, _ = unix.PidfdOpen(c.PID, 0)
	}
	c.kill()
	c.End(time.Now().Add(undoWait))
}

// undoWait bounds how long a container that cannot be made holds up its caller.
const undoWait = 5 * time.Second

// nestName is new for each container: a group that was killed is not used again.
func (m *Maker) nestName(id container.ID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	return fmt.Sprintf("%.8s-%x-%x", string(id), os.Getpid(), uint32(time.Now().UnixNano())+uint32(m.made))
}

// check refuses what cannot be had here.
func (m *Maker) check(s *container.Spec) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if !m.rootless && s.UIDBase == 0 {
		return &process.InvalidError{Field: "uid_base", Reason: "is 0, which is for a tend that is not root; give the first of the sandbox's ids"}
	} else if m.rootless && s.UIDBase != 0 {
		return &process.InvalidError{Field: "uid_base",
			Reason: fmt.Sprintf("is %d; here tend has one id for sandboxes, its own: give 0", s.UIDBase)}
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

// sources are all that a container is built from. A keeper that is root hands the child detached mounts,
// and for another one the child binds paths.
type sources struct {
	kit    *kit
	pieces []piece
	own    source
	layers []source // topmost first
	binds  []bind
}

// source is a detached mount, or a path of the machine without links if fd is -1.
type source struct {
	fd   int
	path string
}

type bind struct {
	source
	isDir, readOnly bool
	target          string
}

func (h *sources) close() {
	h.kit.close()
	for _, s := range append(h.layers, h.own) {
		unixsock.Close([]int{s.fd}) // which may be -1
	}
	for _, b := range h.binds {
		unixsock.Close([]int{b.fd})
	}
	for _, p := range h.pieces {
		unixsock.Close([]int{p.fd})
	}
}

// gather opens all that a container is built from, and prepares what it writes to.
func (m *Maker) gather(s *container.Spec) (_ *sources, err error) {
	d, err := m.openOwn(s)
	if err != nil {
		return nil, err
	}
	defer d.close()
	k, all, err := m.parts.take(s)
	if err != nil {
		return nil, err
	}
	h := &sources{kit: k, own: source{-1, ""}}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if err := m.prepare(s, d.path, all, h); err != nil {
		return nil, err
	}
	if m.rootless {
		return h, m.gatherPaths(s, h)
	}
	if m.byPath {
		return h, m.gatherBound(s, h)
	}
	if h.own.fd, err = d.mount(k.ns); err != nil {
		return nil, err
	}
	for i := range h.pieces {
		p := &h.pieces[i]
		switch {
		case p.host && p.copied:
			p.fd, err = plainTree(p.from, k.ns, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV)
		case p.host:
			p.fd, err = m.parts.attach(p, k.ns)
		}
		if err != nil {
			return nil, err
		}
	}
	const below = unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY
	for i, l := range s.Layers {
		fd, err := tree(l, k.ns, below)
		if errors.Is(err, os.ErrNotExist) {
			return nil, noLayer(i)
		}
		if err != nil {
			return nil, err
		}
		h.layers = append(h.layers, source{fd: fd})
	}
	for i, b := range s.Binds {
		attr := uint64(unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID)
		if b.ReadOnly {
			attr |= unix.MOUNT_ATTR_RDONLY
		}
		open := plainTree
		if b.Disk {
			open = diskTree
		}
		fd, err := open(b.Source, k.ns, attr)
		if err != nil {
			return nil, bindError(i, err)
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		h.binds = append(h.binds, bind{source{fd: fd}, st.Mode&unix.S_IFMT == unix.S_IFDIR, b.ReadOnly, b.Target})
		if err != nil {
			return nil, bindError(i, err)
		}
	}
	return h, nil
}

// gatherPaths is the end of gather for a keeper that is not root.
func (m *Maker) gatherPaths(s *container.Spec, h *sources) (err error) {
	if h.own.path, err = filepath.EvalSymlinks(s.Dir); err != nil {
		return err
	}
	for i, l := range s.Layers {
		dir, err := filepath.EvalSymlinks(l)
		if errors.Is(err, os.ErrNotExist) {
			return noLayer(i)
		}
		if err != nil {
			return err
		}
		h.layers = append(h.layers, source{-1, dir})
	}
	for i, b := range s.Binds {
		if b.Disk {
			return fmt.Errorf("binds[%d]: %w: %w", i, m.noDisk(), process.ErrUnsupported)
		}
		var st unix.Stat_t
		fd, err := openPlain(b.Source)
		if err == nil {
			err = unix.Fstat(fd, &st)
			unix.Close(fd)
		}
		if err != nil {
			return bindError(i, err)
		}
		h.binds = append(h.binds, bind{source{-1, b.Source}, st.Mode&unix.S_IFMT == unix.S_IFDIR, b.ReadOnly, b.Target})
	}
	return nil
}

func noLayer(i int) error {
	return &process.InvalidError{Field: fmt.Sprintf("layers[%d]", i), Reason: "does not exist"}
}

// whyNot says what is wrong with a path that openPlain refused; "": it is another error.
func whyNot(err error) string {
	switch {
	case errors.Is(err, unix.ELOOP):
		return "has a symbolic link; give the path where it leads"
	case errors.Is(err, os.ErrNotExist):
		return "does not exist"
	case errors.Is(err, unix.EACCES) && os.Geteuid() != 0:
		return "is not for the user that tend runs as"
	}
	return ""
}

// bindError says what is wrong with the source of a bind.
func bindError(i int, err error) error {
	why := whyNot(err)
	if why == "" {
		return fmt.Errorf("binds[%d]: %w", i, err)
	}
	return &process.InvalidError{Field: fmt.Sprintf("binds[%d].source", i), Reason: why}
}

// prepare makes what there must be in the directory with up and wk, and finds the pieces of the container.
func (m *Maker) prepare(s *container.Spec, dir string, all []piece, h *sources) error {
	if err := emptied(dir + "/wk"); err != nil {
		return fmt.Errorf("the work directory: %w", err)
	}
	up := dir + "/up"
	copies, err := m.copies(s)
	if err != nil {
		return err
	}
	if s.Base == container.BaseNone {
		all = nil
		for _, name := range []string{"/proc", "/sys", "/dev", "/run"} { // another root may lack them
			if err := os.Mkdir(up+name, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
		}
	} else if err := hosts(up, s.Layers, s.Hostname, m.paths()); err != nil {
		return fmt.Errorf("the directory of a sandbox: %w", err)
	}
	if h.pieces, err = piecesFor(up, s.Layers, slices.Concat(all, copies), m.paths()); err != nil {
		return fmt.Errorf("the directory of a sandbox: %w", err)
	}
	if err := fitting(s, h); err != nil {
		return err
	}
	for i := range len(h.pieces) + 1 {
		if err := os.Mkdir(workDir(dir, i), 0o700); err != nil {
			return fmt.Errorf("the work directory: %w", err)
		}
	}
	if m.byPath {
		return giveAway(s, h.pieces)
	}
	return nil
}

// workDir of the overlay of a piece; that of the root is behind the last one's.
func workDir(dir string, i int) string { return fmt.Sprintf("%s/wk/%d", dir, i) }

// memory of what is not on the disk; it counts as the container's. The kernel's own limit of
// files is for each such filesystem a part of the whole machine's memory.
const (
	runOptions = "mode=755,size=64m,nr_inodes=16k"
	shmOptions = "mode=1777,size=1g,nr_inodes=64k"
	// maxTerminals: the machine has 4,096 for all (kernel.pty.max), of which it keeps 1,024 for itself.
	maxTerminals = "max=256"
)

// build has a child build the root and become pid 1.
func (m *Maker) build(s *container.Spec, proc string, nest *cgroup.Nest, pid *uint32) error {
	group, err := nest.OpenFirst()
	if err != nil {
		return err
	}
	if group >= 0 {
		defer unix.Close(group)
	}
	// In this group the namespace of cgroups is made, and there it begins: all groups of the
	// container are in it. An ordinary user's begins in the group of pid 1.
	around := group
	if !m.paths() {
		if around, err = nest.OpenAround(); err != nil {
			return err
		}
		if around >= 0 {
			defer unix.Close(around)
		}
	}
	h, err := m.gather(s)
	if err != nil {
		return err
	}
	defer h.close()
	calls, text := 128+len(h.layers)+5*len(h.pieces), 16<<10+2*len(h.own.path)
	for _, l := range h.layers {
		text += len(l.path) + 64
	}
	for _, p := range h.pieces {
		text += (len(h.layers)+8)*(len(p.path)+8) + 2*len(p.at) + 512
	}
	for _, b := range h.binds {
		calls += strings.Count(b.target, "/") + 16
		text += len(b.target)*(strings.Count(b.target, "/")+2) + len(b.path) + 256
	}
	l, err := spawn.NewList(calls, text)
	if err != nil {
		return err
	}
	defer l.Close()
	m.write(l, s, h, proc, group, pid)
	if err := l.Run(around); err != nil {
		return explain(err)
	}
	return nil
}
