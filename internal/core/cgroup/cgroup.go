//go:build linux

package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// Tree is the keeper's directory of groups. The zero value has none.
type Tree struct {
	root    string // "" if there is none
	rootFD  int    // of root, so that the way to it is not looked up for each process; or AT_FDCWD
	why     string // then the reason
	canKill bool   // cgroup.kill exists (Linux 5.14)

	v1 []controller // of limits; those that no v2 controller has

	v2 controllers // of limits that are switched on for root

	mu      sync.Mutex
	marks                      // guarded by mu
	refusal error              // why a slot got no directory; guarded by mu
	nests   map[uint32]*Nest   // where the slot's directory is, if not in root; guarded by mu
	own     map[owner][]string // directories in hierarchies of v1; guarded by mu
}

// marks are of slots whose directories are in one directory.
type marks struct {
	killed  slots // the directory must not be used again
	limited slots // it has limits set
}

// ErrNone is returned for each group if there is no tree.
var ErrNone = fmt.Errorf("no cgroup tree: %w", unix.ENOTSUP)

// Root returns the directory of the groups; "" if there is no tree.
func (t *Tree) Root() string { return t.root }

// Why returns the reason why there is no tree; "" if there is one.
func (t *Tree) Why() string { return t.why }

// CanKill reports whether the kernel ends a whole group by itself (Linux 5.14).
func (t *Tree) CanKill() bool { return t.canKill }

// Refused records why a process got no group.
func (t *Tree) Refused(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refusal = err
}

// Refusal is the newest error that Refused was given; nil for none.
func (t *Tree) Refusal() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusal
}

// dir is the slot's directory.
func (t *Tree) dir(slot uint32) string { return t.root + "/" + t.name(slot) }

// name is that of the slot's directory in root.
func (t *Tree) name(slot uint32) string {
	name := "p" + strconv.FormatUint(uint64(slot), 10)
	if n := t.nest(slot); n != nil {
		return n.name + "/" + name
	}
	return name
}

// below is the name of the slot's directory from rootFD.
func (t *Tree) below(slot uint32) string {
	if t.rootFD == unix.AT_FDCWD {
		return t.dir(slot)
	}
	return t.name(slot)
}

// slotOfDir is the reverse of below.
func slotOfDir(name string) (slot uint32, ok bool) {
	digits, ok := strings.CutPrefix(name, "p")
	n, err := strconv.ParseUint(digits, 10, 31)
	return uint32(n), ok && err == nil
}

// Open returns a descriptor of the slot's directory for clone3, and makes the
// directory if there is none. The caller closes it.
func (t *Tree) Open(slot uint32) (int, error) {
	if t.root == "" {
		return -1, ErrNone
	}
	dir, full := t.below(slot), t.dir(slot)
	t.mu.Lock()
	if killed := &t.marksOf(slot).killed; killed.has(slot) {
		if err := removeDir(full); err != nil && err != unix.ENOENT {
			t.mu.Unlock()
			return -1, err
		}
		killed.remove(slot)
	}
	t.mu.Unlock()
	fd, err := unix.Openat(t.rootFD, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		if err := unix.Mkdirat(t.rootFD, dir, 0o755); err != nil && err != unix.EEXIST {
			return -1, err
		}
		fd, err = unix.Openat(t.rootFD, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

// Exists reports whether the slot has a directory.
func (t *Tree) Exists(slot uint32) bool {
	if t.root == "" {
		return false
	}
	fi, err := os.Stat(t.dir(slot))
	return err == nil && fi.IsDir()
}

// Contains reports whether a process with this text of /proc/PID/cgroup is in a
// group of the tree.
func (t *Tree) Contains(text string) bool {
	return t.root != "" && strings.Contains(text, "/"+filepath.Base(t.root)+"/")
}

// SlotOf reads from the text of /proc/PID/cgroup in which slot's group ("…/pN") a
// process is, or was when it became a zombie; -1 for none.
func SlotOf(text string) int {
	if slot, ok := slotOfDir(filepath.Base(v2Path(text))); ok {
		return int(slot)
	}
	return -1
}

// IsFirst reports whether a process with this text of /proc/PID/cgroup is in the group of a
// container's pid 1, or makes that.
func IsFirst(text string) bool {
	nest := strings.TrimSuffix(v2Path(text), "/"+initGroup)
	tree, name := filepath.Split(nest)
	return strings.HasPrefix(name, nestPrefix) && strings.HasPrefix(filepath.Base(tree), Prefix)
}

// v2Path is the path in the hierarchy of v2; "" without one.
func v2Path(text string) string {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return strings.TrimSuffix(path, " (deleted)")
		}
	}
	return ""
}

// Members lists the processes in the slot's group, and in groups below it that a
// privileged descendant may have made.
func (t *Tree) Members(slot uint32) ([]int, error) {
	if t.root == "" {
		return nil, ErrNone
	}
	return membersBelow(t.dir(slot))
}

// OpenEvents opens the slot's cgroup.events. POLLPRI on it says that Populated may
// have changed.
func (t *Tree) OpenEvents(slot uint32) (int, error) {
	if t.root == "" {
		return -1, ErrNone
	}
	return unix.Openat(t.rootFD, t.below(slot)+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// Populated reads an open cgroup.events. A file that cannot be read (the directory
// is gone) belongs to an empty group.
func Populated(events int) bool {
	var b [128]byte
	n, err := unix.Pread(events, b[:], 0)
	return err == nil && bytes.Contains(b[:n], []byte("populated 1"))
}

// WaitEmpty waits until the slot's group is empty, or until a time, and reports whether
// it is empty. A group that cannot be read counts as empty.
func (t *Tree) WaitEmpty(slot uint32, until time.Time) bool {
	fd, err := t.OpenEvents(slot)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	waitEmpty(fd, until)
	return !Populated(fd)
}

func waitEmpty(events int, until time.Time) {
	for Populated(events) && time.Now().Before(until) {
		unix.Poll([]unix.PollFd{{Fd: int32(events), Events: unix.POLLPRI}}, 20)
	}
}

// Kill ends everybody in the slot's group. It does not wait: see WaitEmpty.
// Kernels without cgroup.kill: ENOTSUP.
func (t *Tree) Kill(slot uint32) error {
	if !t.canKill {
		return unix.ENOTSUP
	}
	t.mu.Lock()
	t.marksOf(slot).killed.add(slot)
	t.mu.Unlock()
	return writeFile(t.dir(slot)+"/cgroup.kill", "1")
}

// OOMKilled reports whether the kernel's OOM killer struck in the group; in a nest,
// whether it has since the last call. It needs the memory controller.
func (t *Tree) OOMKilled(slot, gen uint32) bool {
	if n, ok := t.ownOOMs(owner{slot, gen}); ok { // v1 counts each in its own group, not in those around
		return n > 0
	}
	if n := t.nest(slot); n != nil && n.struck() {
		return true
	}
	if t.root == "" || field(t.dir(slot)+"/memory.events", "oom_kill") == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marksOf(slot).killed.add(slot) // a directory that is made again counts from 0
	return true
}

func writeFile(path, s string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The memory controller looks for a signal before it changes a limit.
	_, err = eintr.Get(func() (int, error) { return unix.Write(fd, []byte(s)) })
	return err
}
