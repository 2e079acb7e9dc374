//go:build linux

package cgroup

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/box"
)

// A Nest is the directory of a box in the tree: its processes have their slots' groups
// in it (Place), and pid 1 has the group initGroup. So the box has limits of its own,
// stands still by one write, and ends by another. With v1 controllers the limits are
// in directories of the same name in their hierarchies, which processes join by the
// files of Tasks.
//
// Without a tree a nest has limits alone, where a v1 controller gives them.
type Nest struct {
	t    *Tree
	name string

	killed, limited slots // as the Tree's; guarded by t.mu

	v1 atomic.Pointer[[]string] // v1Dirs, once they were looked for

	frozen atomic.Pointer[bool] // as it was told last; nil: by a keeper before, if at all

	mu   sync.Mutex // of what follows
	ooms int64      // that struck has told; guarded by mu
}

const initGroup = "init"

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

// Make makes the directory, and returns a descriptor of pid 1's group for clone3, which
// the caller closes; -1 where there is no tree.
func (n *Nest) Make() (int, error) {
	if n.t.root == "" {
		return -1, nil
	}
	n.frozen.Store(new(bool))
	for _, dir := range []string{n.Dir(), n.Dir() + "/" + initGroup} {
		if err := unix.Mkdir(dir, 0o755); err != nil {
			return -1, fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return unix.Open(n.Dir()+"/"+initGroup, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
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

// killedOf is the set of those that were killed beside the slot's directory. t.mu is
// held.
func (t *Tree) killedOf(slot uint32) *slots {
	if n := t.nests[slot]; n != nil {
		return &n.killed
	}
	return &t.killed
}

// limitedOf is the same for limits. t.mu is held.
func (t *Tree) limitedOf(slot uint32) *slots {
	if n := t.nests[slot]; n != nil {
		return &n.limited
	}
	return &t.limited
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

// CanFreeze reports whether nests can stand still.
func (t *Tree) CanFreeze() bool {
	if t.root == "" {
		return false
	}
	_, err := os.Stat(t.root + "/cgroup.freeze")
	return err == nil
}

// Freeze has all in the nest stand still, or go on, and waits until they do. Errors:
// process.ErrUnsupported; the kernel did not do it in time.
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
		time.Sleep(pause)
	}
}

// Frozen reports whether the nest was told to stand still.
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
	filepath.WalkDir(n.Dir(), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			b, _ := os.ReadFile(path + "/cgroup.procs")
			for f := range strings.FieldsSeq(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
		}
		return nil
	})
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
			time.Sleep(pause)
			err = removeDir(dir)
		}
		if err != nil && err != unix.ENOENT {
			last = fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return last
}

// nestLimits are the files of a nest's limits.
var nestLimits = []struct {
	controller, v2 string
	of             func(l *box.Limits) string // the value for v2; "": not asked for
	none           string
}{
	{"memory", "memory.max", func(l *box.Limits) string { return decimal(l.Memory) }, "max"},
	{"pids", "pids.max", func(l *box.Limits) string { return decimal(l.Tasks) }, "max"},
	{"cpu", "cpu.max", func(l *box.Limits) string {
		if l.CPUs == 0 {
			return ""
		}
		return fmt.Sprintf("%d %d", quota(l.CPUs), period)
	}, "max"},
}

// period of processor time, in microseconds.
const period = 100_000

// quota is how many microseconds of each period so many processors have. The kernel
// takes 1 ms and more.
func quota(cpus float64) int64 { return max(1000, int64(math.Round(cpus*period))) }

func decimal(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Controllers returns "" for each of "memory", "pids" and "cpu" that nests can be limited
// by, and the reason for the others.
func (t *Tree) Controllers() map[string]string {
	t.lookAgain()
	out := map[string]string{}
	for _, l := range nestLimits {
		switch {
		case t.hasV2(l.controller), t.v1Of(l.controller) != nil:
			out[l.controller] = ""
		default:
			out[l.controller] = "neither cgroup v2 nor v1 has the controller \"" + l.controller + "\" where tend may write"
		}
	}
	return out
}

// controllers are those of v2 that were looked for.
type controllers struct {
	mu   sync.Mutex
	have map[string]bool // guarded by mu
}

// hasV2 reports whether the tree's root has the controller. The first time it switches
// it on.
func (t *Tree) hasV2(controller string) bool {
	if t.root == "" {
		return false
	}
	t.v2.mu.Lock()
	defer t.v2.mu.Unlock()
	has, known := t.v2.have[controller]
	if known {
		return has
	}
	look := func() bool {
		b, err := os.ReadFile(t.root + "/cgroup.subtree_control")
		return err == nil && contains(string(b), controller)
	}
	if has = look(); !has {
		for _, dir := range []string{filepath.Dir(t.root), t.root} {
			writeFile(dir+"/cgroup.subtree_control", "+"+controller)
		}
		has = look()
	}
	if t.v2.have == nil {
		t.v2.have = map[string]bool{}
	}
	t.v2.have[controller] = has
	return has
}

// lookAgain has hasV2 look anew.
func (t *Tree) lookAgain() {
	t.v2.mu.Lock()
	defer t.v2.mu.Unlock()
	t.v2.have = nil
}

func contains(words, word string) bool {
	for w := range strings.FieldsSeq(words) {
		if w == word {
			return true
		}
	}
	return false
}

// Limit sets the limits; was are those that it has. A limit that cannot be had is
// process.ErrUnsupported, and then none is changed.
func (n *Nest) Limit(was, l *box.Limits) error {
	for _, f := range nestLimits {
		if f.of(l) != "" && !n.t.hasV2(f.controller) && n.t.v1Of(f.controller) == nil {
			return fmt.Errorf("limits.%s needs the cgroup controller %q, which is not available to tend here: %w", map[string]string{"memory": "memory", "pids": "tasks", "cpu": "cpus"}[f.controller], f.controller, process.ErrUnsupported)
		}
	}
	for _, f := range nestLimits {
		value := f.of(l)
		if value == f.of(was) {
			continue
		}
		if n.t.hasV2(f.controller) {
			if value == "" {
				value = f.none
			}
			if err := writeFile(n.Dir()+"/"+f.v2, value); err != nil {
				return fmt.Errorf("%s: %w", f.v2, err)
			}
			if f.controller == "memory" {
				if err := n.limitSwap(l.Memory != 0); err != nil {
					return err
				}
			}
			continue
		}
		if err := n.limitV1(f.controller, l); err != nil {
			return err
		}
	}
	return nil
}

// limitSwap has the limit of memory be one of memory and swap together, as with v1: else a
// program that takes too much would fill the machine's swap. A kernel that keeps no
// account of swap has no such file.
func (n *Nest) limitSwap(limited bool) error {
	value := "max"
	if limited {
		value = "0"
	}
	if err := writeFile(n.Dir()+"/memory.swap.max", value); err != nil && err != unix.ENOENT {
		return fmt.Errorf("memory.swap.max: %w", err)
	}
	return nil
}

// Usage of all that ran in the nest.
func (n *Nest) Usage() (u box.Usage) {
	if dir := n.Dir(); dir != "" {
		u.CPU = time.Duration(field(dir+"/cpu.stat", "usage_usec")) * time.Microsecond
		u.Memory, u.MemoryPeak = number(dir+"/memory.current"), number(dir+"/memory.peak")
		u.Tasks = number(dir + "/pids.current")
	}
	if dir := n.v1Dir("memory"); dir != "" && u.Memory == 0 {
		u.Memory, u.MemoryPeak = number(dir+"/memory.usage_in_bytes"), number(dir+"/memory.max_usage_in_bytes")
	}
	if dir := n.v1Dir("pids"); dir != "" && u.Tasks == 0 {
		u.Tasks = number(dir + "/pids.current")
	}
	if u.Memory == 0 || u.Tasks == 0 {
		memory, tasks := n.count()
		if u.Memory == 0 {
			u.Memory = memory
		}
		if u.Tasks == 0 {
			u.Tasks = tasks
		}
	}
	u.MemoryPeak = max(u.MemoryPeak, u.Memory)
	u.OOMKills = n.oomKills()
	return u
}

// count adds up what the processes themselves say, where no controller does: resident
// memory that is theirs alone, in bytes, and threads.
func (n *Nest) count() (memory, tasks int64) {
	page := int64(os.Getpagesize())
	for _, pid := range n.Members() {
		dir := "/proc/" + strconv.Itoa(pid)
		if b, err := os.ReadFile(dir + "/statm"); err == nil {
			var size, resident, shared int64
			if k, _ := fmt.Sscan(string(b), &size, &resident, &shared); k == 3 {
				memory += (resident - shared) * page
			}
		}
		threads, _ := os.ReadDir(dir + "/task")
		tasks += int64(len(threads))
	}
	return memory, tasks
}

func (n *Nest) oomKills() int64 {
	if dir := n.Dir(); dir != "" {
		if v := field(dir+"/memory.events", "oom_kill"); v > 0 {
			return v
		}
	}
	if dir := n.v1Dir("memory"); dir != "" {
		return field(dir+"/memory.oom_control", "oom_kill")
	}
	return 0
}

// struck reports whether somebody was killed for want of memory since the last call.
func (n *Nest) struck() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.oomKills()
	if now <= n.ooms {
		return false
	}
	n.ooms = now
	return true
}

// number reads a file that holds one; 0 if there is none.
func number(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	v, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return v
}

// field reads the number behind a word in a file of such lines; 0 if there is none.
func field(path, word string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, word+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
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
