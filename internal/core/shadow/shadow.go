//go:build linux && (amd64 || arm64)

package shadow

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/contain"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/disk"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/newfs"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// Bounds of what is written in a shadow, in bytes and in files.
const (
	mostSize = 1 << 30
	inodes   = "256k"
)

// endWait bounds how long the end of all that runs in a shadow may take.
const endWait = time.Minute

// Shadow is one that was made. Its methods are called one at a time.
type Shadow struct {
	of        container.Spec // the container that it shows
	scratch   string
	own       int // a detached filesystem that takes what is written
	top       int // a detached mount of the directory, or of the disk, that the container writes to
	container *contain.Container
	locked    bool // its goroutine is locked to its thread
}

// Make creates a shadow of the container of a keeper whose state directory is state. scratch
// is a directory only for this shadow; it is emptied, and removed by [Shadow.Close]. If
// it belongs to an earlier shadow whose creator was killed, that shadow is ended first.
//
// The goroutine is locked to its thread until it calls Close, which it must do: the
// kernel ends a shadow with the thread that created it.
//
// blank makes a file with an empty disk of so many bytes. It is called where a filesystem in
// memory cannot take all that is written: before Linux 6.6.
//
// Errors: container.ErrNotFound: there is no such container, or it has ended; process.ErrUnsupported.
func Make(state, scratch string, id container.ID, blank func(path string, bytes int64) error) (_ *Shadow, err error) {
	of, err := contain.Live(state, id)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("over the files of a sandbox only root may mount memory; run tend as root: %w", process.ErrUnsupported)
	}
	s := &Shadow{of: of, scratch: scratch, own: -1, top: -1, locked: true}
	runtime.LockOSThread()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := endLeft(scratch); err != nil {
		return nil, fmt.Errorf("what a command before has left: %w", err)
	}
	if err := errors.Join(os.RemoveAll(scratch), os.MkdirAll(filepath.Join(scratch, "run"), 0o700)); err != nil {
		return nil, err
	}
	if s.own, err = takes(scratch, s.Room(), blank); err != nil {
		return nil, fmt.Errorf("room for what is written: %w", err)
	}
	if s.top, err = written(&of); err != nil {
		return nil, err
	}
	m, err := contain.NewMaker(scratch, &cgroup.Tree{}) // it stays in the groups of this process
	if err != nil {
		return nil, err
	}
	spec := s.spec()
	if s.container, err = m.MakeShadow(&spec, s.own, s.top); err != nil {
		return nil, err
	}
	return s, nil
}

// endLeft ends the shadow that a killed maker has left: the kernel does, but for one that was
// not whole, or that an older version made. Its file says which process it is, and since when.
func endLeft(scratch string) error {
	live, over := contain.Find(scratch, &cgroup.Tree{}, func(string, ...any) {})
	for _, c := range append(live, over...) {
		if err := end(c); err != nil {
			return err
		}
	}
	return nil
}

func end(c *contain.Container) error {
	if err := c.Kill(); err != nil {
		return err
	}
	return c.End(time.Now().Add(endWait))
}

// spec is that of the shadow's own container, without what the other one writes to.
func (s *Shadow) spec() container.Spec {
	spec := container.Spec{
		ID: container.NewID(), Hostname: s.of.Hostname,
		Dir: fdPath(s.own), Layers: s.of.Layers,
		Base: s.of.Base, Hide: s.of.Hide, Show: s.of.Show, UIDBase: s.of.UIDBase, Net: container.NetNone, Volatile: true,
	}
	for _, b := range s.of.Binds {
		b.ReadOnly = true
		spec.Binds = append(spec.Binds, b)
	}
	return spec
}

// takes returns a detached filesystem of so many bytes with what an overlay needs: in memory,
// or in a file below scratch.
func takes(scratch string, size int64, blank func(string, int64) error) (fd int, err error) {
	fd, err = newfs.Mount("tmpfs", unix.MOUNT_ATTR_NODEV, "mode=700", fmt.Sprintf("size=%d", size), "nr_inodes="+inodes)
	if err == nil {
		err = furnish(fd)
	}
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return fd, err
	}
	path := filepath.Join(scratch, "disk.img")
	if err := blank(path, size); err != nil {
		return -1, fmt.Errorf("before Linux 6.6 that is a disk: %w", err)
	}
	m, err := disk.Open(path)
	if err != nil {
		return -1, fmt.Errorf("before Linux 6.6 that is a disk: %w", err)
	}
	fd = m.Take()
	return fd, furnish(fd)
}

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// furnish makes the directories of an overlay, or closes the filesystem. EOPNOTSUPP: it is one
// that lacks the attributes that overlays of a user namespace write.
func furnish(fd int) (err error) {
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	for _, name := range []string{"up", "wk"} {
		if err := errors.Join(unix.Mkdirat(fd, name, 0o755), unix.Fchmodat(fd, name, 0o755, 0)); err != nil {
			return err
		}
	}
	const mark = "user.overlay.tend"
	up := fdPath(fd) + "/up"
	return errors.Join(unix.Setxattr(up, mark, []byte("y"), 0), unix.Removexattr(up, mark))
}

// written returns a detached mount of what a container writes to.
func written(of *container.Spec) (int, error) {
	if of.Disk == "" {
		fd, err := unix.OpenTree(unix.AT_FDCWD, of.Dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return -1, fmt.Errorf("%s: %w", of.Dir, err)
		}
		return fd, nil
	}
	m, err := disk.Open(of.Disk)
	if err != nil {
		return -1, err
	}
	return m.Take(), nil
}

// Covers reports whether the shadow takes writes at a path: all except the container's shares
// with the machine.
func (s *Shadow) Covers(path string) bool {
	for _, b := range s.of.Binds {
		if path == b.Target || strings.HasPrefix(path, b.Target+"/") {
			return false
		}
	}
	return true
}

// Harden is what programs of the container are denied: they have these capabilities alone, a bit
// each, and a filter of system calls.
func (s *Shadow) Harden() (caps uint64, filter bool) { return s.of.Harden.Caps, s.of.Harden.Seccomp }

// Room is the maximum size of what is written: 1 GiB, or the memory limit of
// the container's programs if that is less. A larger one would not fail like a full disk, but
// would get processes killed.
func (s *Shadow) Room() int64 {
	if m := s.of.Limits.Memory; m != 0 {
		return min(m, mostSize)
	}
	return mostSize
}

// Root opens the root of the shadow, a path only, which shows the files of the container. ids is the
// id outside of root inside.
func (s *Shadow) Root() (dir *os.File, ids uint32, err error) {
	if s.container == nil {
		return nil, 0, fmt.Errorf("the shadow has ended: %w", process.ErrUnavailable)
	}
	// Its pid 1 is a child of this process, so the pid stays its own.
	dir, err = os.OpenFile(procfs.Path(s.container.PID, "root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	return dir, s.of.UIDBase, err
}

// Run runs this program again, in the shadow, to its end. It is root there, with all
// capabilities. The status is as a shell has it: 128 and its number for a signal.
func (s *Shadow) Run(p Program) (status int, err error) {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(null)
	starter, err := spawn.New(null)
	if err != nil {
		return 0, err
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	defer self.Close()
	auxv, err := unix.Auxv()
	if err == nil {
		err = alone(auxv)
	}
	if err != nil {
		return 0, err
	}
	pid, pidfd, err := starter.Start(&spawn.Program{
		Path: "/proc/self/fd/4", Argv: p.Argv, Env: p.Env, Dir: p.Dir, Files: []int{0, 1, 2, int(p.File.Fd()), int(self.Fd())},
		Group: -1, User: &spawn.User{}, Enter: &spawn.Enter{PID1: s.container.PIDFD(), Flags: contain.Namespaces, Caps: ^uint64(0)},
	})
	if err != nil {
		return 0, explain(err)
	}
	unix.Close(pidfd)
	var w unix.WaitStatus
	if _, err := eintr.Get(func() (int, error) { return unix.Wait4(pid, &w, unix.WALL, nil) }); err != nil {
		return 0, err
	}
	if w.Signaled() {
		return 128 + int(w.Signal()), nil
	}
	return w.ExitStatus(), nil
}

// atBase is where the kernel has put the loader of a program; 0: it has none.
const atBase = 7

// alone refuses a program that the kernel starts by another one, its loader: that one, and
// the libraries, would be the container's files, and have all rights of [Shadow.Run]. auxv is what
// the kernel has told the program.
func alone(auxv [][2]uintptr) error {
	if slices.ContainsFunc(auxv, func(told [2]uintptr) bool { return told[0] == atBase && told[1] != 0 }) {
		return fmt.Errorf("this tend is linked with libraries of the machine, and in a sandbox those would be the sandbox's; use a released tend, or build it with CGO_ENABLED=0: %w", process.ErrUnsupported)
	}
	return nil
}

func explain(err error) error {
	var f *spawn.Failure
	if errors.As(err, &f) && f.Step == spawn.StepExec && f.Errno == unix.EACCES {
		return fmt.Errorf("the program of tend may not be executed by others (chmod o+rx): %w", err)
	}
	return err
}

// End ends all that runs in the shadow, and returns when nothing does.
func (s *Shadow) End() error {
	if s.container == nil {
		return nil
	}
	if err := end(s.container); err != nil {
		return err
	}
	s.container = nil
	return nil
}

// Changed opens the changes below a directory inside, given by its path without links;
// -1: there are none. Call it after End, when nothing changes any more. A removed
// directory or file of the container is a character device 0/0, and a directory that replaced
// another one has the attribute user.overlay.opaque. Owners are shown with first added to
// their ids inside.
func (s *Shadow) Changed(path string) (fd int, first uint32, err error) {
	if s.container != nil {
		return -1, 0, fmt.Errorf("the shadow has not ended: %w", process.ErrUnavailable)
	}
	fd, err = eintr.Get(func() (int, error) {
		return unix.Openat2(s.own, "up"+path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	})
	if errors.Is(err, unix.ENOENT) {
		return -1, 0, nil
	}
	return fd, s.of.UIDBase, err
}

// Close ends all processes, and discards the changes.
func (s *Shadow) Close() error {
	err := s.End()
	if s.locked {
		s.locked = false
		runtime.UnlockOSThread()
	}
	for _, fd := range []*int{&s.own, &s.top} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	return errors.Join(err, os.RemoveAll(s.scratch))
}
