//go:build linux

package cgroup

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/nap"
	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// A Nest is the directory of a container in the tree: its processes have their slots' groups
// in it (Place), and the group initGroup holds pid 1 and the helpers that make programs in
// the container. So the container has its own limits, and one write freezes or kills it. With v1
// controllers the limits are in directories of the same name in their hierarchies, which
// processes join through the files of Tasks.
//
// Without a tree a nest has only the limits of v1 controllers.
type Nest struct {
	t    *Tree
	name string

	marks // guarded by t.mu

	v1     atomic.Pointer[[]string] // v1Dirs, once they were looked for
	joined atomic.Bool              // Join is over

	frozen atomic.Pointer[bool] // as it was told last; nil: by a keeper before, if at all

	ownOOMs atomic.Int64 // of processes whose v1 directories in that of the nest are gone

	mu   sync.Mutex // of what follows
	ooms int64      // that struck has told; guarded by mu
}

const initGroup = "init"

// Prefix begins the name of each tree.
const Prefix = "tend-"

// nestPrefix distinguishes nests from the directories of slots.
const nestPrefix = "b"

// Nest returns the nest of this name, which need not exist: letters and digits.
func (t *Tree) Nest(name string) *Nest { return &Nest{t: t, name: nestPrefix + name} }

// Dir is the directory in the tree; "" if there is no tree.
func (n *Nest) Dir() string {
	if n.t.root == "" {
		return ""
	}
	return n.t.root + "/" + n.name
}

// Make makes the directory. Nothing is in it but pid 1's group, which is empty.
func (n *Nest) Make() error {
	if n.t.root == "" {
		return nil
	}
	n.frozen.Store(new(bool))
	n.t.hasV2("cpu") // it is switched on, so that nests have the same weight
	for _, dir := range []string{n.Dir(), n.Dir() + "/" + initGroup} {
		if err := unix.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// OpenFirst returns a descriptor of pid 1's group for clone3, and OpenAround one of the
// directory itself, which may have no processes once limits are set below it. The caller
// closes them; -1 where there is no tree.
func (n *Nest) OpenFirst() (int, error)  { return n.open("/" + initGroup) }
func (n *Nest) OpenAround() (int, error) { return n.open("") }

func (n *Nest) open(below string) (int, error) {
	if n.t.root == "" {
		return -1, nil
	}
	return unix.Open(n.Dir()+below, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// EndHelpers is for a keeper that takes over: it ends all in pid 1's group but pid 1, which
// a keeper before has left in the middle of a start, and waits until they have ended or a
// time. What they were to do is done then, or will not be.
func (n *Nest) EndHelpers(first int, until time.Time) {
	if n.t.root == "" {
		return
	}
	members := func() []int { return membersOf(n.Dir() + "/" + initGroup) }
	for _, pid := range members() {
		if pid == first {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if slices.Contains(members(), pid) { // else the number may be another's by now
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			for !pidfd.Ended(fd, 100) && time.Now().Before(until) {
			}
		}
		unix.Close(fd)
	}
}

// membersOf lists the processes of a group, and membersBelow those of the groups below it, too: it
// leaves out those that it cannot read, and returns the first error.
func membersOf(dir string) []int {
	b, _ := os.ReadFile(dir + "/cgroup.procs")
	return procfs.AppendPIDs(nil, b)
}

func membersBelow(dir string) (pids []int, first error) {
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		var b []byte
		if err == nil && d.IsDir() {
			b, err = os.ReadFile(path + "/cgroup.procs")
			pids = procfs.AppendPIDs(pids, b)
		}
		first = cmp.Or(first, err)
		return nil
	})
	return pids, first
}

// Place says that the slot's group is in a nest from now on; nil: in the tree's
// root.
func (t *Tree) Place(slot uint32, n *Nest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case n == nil:
		delete(t.nests, slot)
	case t.nests == nil:
		t.nests = map[uint32]*Nest{slot: n}
	default:
		t.nests[slot] = n
	}
}

func (t *Tree) nest(slot uint32) *Nest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nests[slot]
}

// marksOf are the sets that the slot's directory is in. t.mu is held.
func (t *Tree) marksOf(slot uint32) *marks {
	if n := t.nests[slot]; n != nil {
		return &n.marks
	}
	return &t.marks
}

// Adopt is for a keeper that takes over a nest: it finds out in which slots' groups
// somebody is, and trusts none of them.
func (n *Nest) Adopt() (populated []uint32) {
	n.mu.Lock()
	n.ooms = n.oomKills()
	n.mu.Unlock()
	if n.t.root == "" {
		return nil
	}
	entries, _ := os.ReadDir(n.Dir())
	for _, e := range entries {
		slot, ok := slotOfDir(e.Name())
		if !ok {
			continue
		}
		n.t.mu.Lock()
		n.killed.add(slot)
		n.t.mu.Unlock()
		if populatedDir(n.Dir() + "/" + e.Name()) {
			populated = append(populated, slot)
		}
	}
	return populated
}

func populatedDir(dir string) bool {
	fd, err := unix.Open(dir+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return Populated(fd)
}

// CanFreeze reports whether nests can be frozen.
func (t *Tree) CanFreeze() bool {
	if t.root == "" {
		return false
	}
	_, err := os.Stat(t.root + "/cgroup.freeze")
	return err == nil
}

// Freeze freezes or thaws all processes in the nest, and waits until this is done.
// Errors: process.ErrUnsupported; the kernel did not do it in time.
func (n *Nest) Freeze(frozen bool, until time.Time) error {
	if n.t.root == "" {
		return fmt.Errorf("a sandbox stands still by cgroup v2: %s: %w", n.t.why, process.ErrUnsupported)
	}
	value, want := "0", "frozen 0"
	if frozen {
		value, want = "1", "frozen 1"
	}
	n.frozen.Store(nil)
	if err := writeFile(n.Dir()+"/cgroup.freeze", value); err != nil {
		if err == unix.ENOENT && n.exists() {
			err = fmt.Errorf("it takes Linux 5.2: %w", process.ErrUnsupported)
		}
		return fmt.Errorf("cgroup.freeze: %w", err)
	}
	n.frozen.Store(&frozen)
	fd, err := unix.Open(n.Dir()+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The kernel has an event for it, but gives that up to 10 ms later.
	var b [128]byte
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		got, err := unix.Pread(fd, b[:], 0)
		if err != nil {
			return err
		}
		if strings.Contains(string(b[:got]), want) {
			return nil
		}
		if !time.Now().Before(until) {
			return fmt.Errorf("the kernel has not done it yet: %w", process.ErrUnavailable)
		}
		nap.For(pause)
	}
}

// Frozen reports whether the nest was asked to freeze.
func (n *Nest) Frozen() bool {
	if told := n.frozen.Load(); told != nil {
		return *told
	}
	b, err := os.ReadFile(n.Dir() + "/cgroup.freeze")
	return n.t.root != "" && err == nil && strings.TrimSpace(string(b)) == "1"
}

func (n *Nest) exists() bool {
	_, err := os.Stat(n.Dir())
	return err == nil
}

// Kill ends all in the nest. It does not wait. ENOTSUP: the kernel cannot.
func (n *Nest) Kill() error {
	if n.t.root == "" || !n.t.canKill {
		return unix.ENOTSUP
	}
	return writeFile(n.Dir()+"/cgroup.kill", "1")
}

// Members lists all processes in the nest.
func (n *Nest) Members() (pids []int) {
	if n.t.root == "" {
		return nil
	}
	pids, _ = membersBelow(n.Dir())
	return pids
}

// Remove removes the directories, once all in them have ended; it waits for
// that until a time.
func (n *Nest) Remove(until time.Time) error {
	n.t.mu.Lock()
	for slot, in := range n.t.nests {
		if in == n {
			delete(n.t.nests, slot)
		}
	}
	for o, dirs := range n.t.own {
		// It may have others elsewhere, of controllers by which the nest is not limited.
		dirs = slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return filepath.Base(filepath.Dir(dir)) == n.name })
		if n.t.own[o] = dirs; len(dirs) == 0 {
			delete(n.t.own, o)
		}
	}
	n.t.mu.Unlock()
	dirs := n.v1Dirs()
	if n.t.root != "" {
		dirs = append(dirs, n.Dir())
		if fd, err := unix.Open(n.Dir()+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			waitEmpty(fd, until)
			unix.Close(fd)
		}
	}
	var last error
	for _, dir := range dirs {
		err := removeDir(dir)
		for pause := 100 * time.Microsecond; err == unix.EBUSY && time.Now().Before(until); pause = min(2*pause, 10*time.Millisecond) {
			nap.For(pause)
			err = removeDir(dir)
		}
		if err != nil && err != unix.ENOENT {
			last = fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return last
}

// Nests lists the names of the nests that there are.
func (t *Tree) Nests() (names []string) {
	if t.root == "" {
		return nil
	}
	entries, _ := os.ReadDir(t.root)
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), nestPrefix); ok && e.IsDir() {
			names = append(names, name)
		}
	}
	return names
}
