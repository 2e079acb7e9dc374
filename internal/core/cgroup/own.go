//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/process"
)

// Where a controller is one of v1, a process that is limited by it has a directory of its
// own in that hierarchy: beside the directory of the nests, or in that of its nest. Unlike
// those of v2 such a directory is made for one process, and removed after it: an empty one
// of the memory controller takes 288 KiB of the kernel's memory. So its name has the
// generation of the slot, and what somebody left behind cannot get into the next one.

// owner is who has directories of v1 controllers.
type owner struct{ slot, gen uint32 }

// ownName is the name of an owner's directories, behind the name of the tree or in a nest.
func (o owner) name() string { return fmt.Sprintf("p%d.%d", o.slot, o.gen) }

func ownerOf(name string) (o owner, ok bool) {
	slot, gen, ok := strings.Cut(name, ".")
	o.slot, _ = slotOfDir(slot)
	n, err := strconv.ParseUint(gen, 10, 32)
	o.gen = uint32(n)
	return o, ok && err == nil && o.name() == name
}

// Own is the v1 directories of a process that starts.
type Own []string

// Tasks opens the files by which a child joins: it writes "0". The caller closes them.
func (o Own) Tasks() (fds []int, err error) {
	for _, dir := range o {
		fd, err := unix.Open(dir+"/tasks", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// ownDir is where an owner's directory of a controller is made: in that of its nest if
// that has one, so that the limits of both hold.
func (t *Tree) ownDir(c *controller, o owner) string {
	if n := t.nest(o.slot); n != nil {
		if dir := n.v1Dir(c.name); dir != "" {
			return dir + "/" + o.name()
		}
	}
	return c.root + "." + o.name()
}

// limitOwn makes the owner's directory of a v1 controller, with a limit.
func (t *Tree) limitOwn(c *controller, o owner, f *limit, value int64) error {
	dir := t.ownDir(c, o)
	t.mu.Lock()
	if t.own == nil {
		t.own = map[owner][]string{}
	}
	if dirs := t.own[o]; len(dirs) == 0 || dirs[len(dirs)-1] != dir { // one hierarchy may have several controllers
		t.own[o] = append(dirs, dir)
	}
	t.mu.Unlock()
	if err := mkdir(dir); err != nil {
		return err
	}
	switch {
	case f.file == cpuMax:
		return t.limitTime(dir, value)
	case c.name == "cpu": // 1024 shares are what others have, of whom v2 says 100
		return writeFile(dir+"/cpu.shares", strconv.FormatInt(max(2, value*1024/100), 10))
	}
	return setV1(dir, c.name, value)
}

// limitTime sets how many microseconds of each period those in a directory of v1 have. In a
// nest they have no more than it has, and v1 refuses to be told more, as v2 does not.
func (t *Tree) limitTime(dir string, value int64) error {
	if err := writeFile(dir+"/cpu.cfs_period_us", strconv.Itoa(period)); err != nil {
		return err
	}
	if t.inNest(dir) {
		if around := number(filepath.Dir(dir) + quotaV1); around > 0 {
			value = min(value, around)
		}
	}
	return writeFile(dir+quotaV1, strconv.FormatInt(value, 10))
}

// quotaV1 is how many microseconds of each period those in a directory of v1 have; -1: all.
const quotaV1 = "/cpu.cfs_quota_us"

// shortenTime has no process's directory in that of a nest say more than the nest is to have:
// v1 would refuse it.
func shortenTime(nest string, value int64) {
	entries, _ := os.ReadDir(nest)
	for _, e := range entries {
		if _, ok := ownerOf(e.Name()); !ok || !e.IsDir() {
			continue
		}
		if dir := filepath.Join(nest, e.Name()); number(dir+quotaV1) > value {
			writeFile(dir+quotaV1, strconv.FormatInt(value, 10))
		}
	}
}

// setV1 sets the limit of memory or tasks in a directory of v1; 0 lifts it. One of memory
// holds for memory and swap together.
func setV1(dir, controller string, value int64) error {
	set := func(file, text string) error { return setFile(dir, "/"+file, text) }
	if controller == "pids" {
		if value == 0 {
			return set("pids.max", "max")
		}
		return set("pids.max", decimal(value))
	}
	text := "-1"
	if value > 0 {
		text = decimal(value)
	}
	// With swap it may never be less than without: which of the two is first depends
	// on the values before. Kernels without an account of swap have no such file.
	swap := "memory.memsw.limit_in_bytes"
	_, missing := os.Stat(dir + "/" + swap)
	first := set("memory.limit_in_bytes", text)
	if missing == nil {
		if err := set(swap, text); err != nil {
			return errors.Join(first, err) // the first may be why the second was refused
		}
		if first != nil {
			first = set("memory.limit_in_bytes", text)
		}
	}
	if first == nil && value > 0 {
		first = setBuffers(dir, value)
	}
	return first
}

// setFile is writeFile for a file of a directory, which the error names.
func setFile(dir, file, text string) error {
	if err := writeFile(dir+file, text); err != nil {
		return fmt.Errorf("%s: %w", file[1:], err)
	}
	return nil
}

// leastBuffers is what the buffers of TCP connections may take at least, in bytes.
const leastBuffers = 16 << 20

// mostBuffers is what those of one sandbox may take of what all of the machine may, net.ipv4.tcp_mem.
var mostBuffers = sync.OnceValue(func() int64 {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_mem")
	words := strings.Fields(string(text)) // in pages
	if err != nil || len(words) != 3 {
		return math.MaxInt64
	}
	pages, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil || pages > math.MaxInt64/int64(os.Getpagesize()) {
		return math.MaxInt64
	}
	return pages * int64(os.Getpagesize()) / 8
})

// setBuffers bounds the buffers of TCP connections, which v1 counts beside the memory and only where
// they have a limit: a quarter of that of the memory, and an eighth of what the machine has. The limit
// slows connections down and ends nothing. Later kernels may lack it.
func setBuffers(dir string, memory int64) error {
	const file = "memory.kmem.tcp.limit_in_bytes"
	err := writeFile(dir+"/"+file, decimal(min(memory, max(min(memory/4, mostBuffers()), leastBuffers))))
	if err != nil && err != unix.ENOENT && err != unix.EOPNOTSUPP {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// ownOf are the owner's directories.
func (t *Tree) ownOf(o owner) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.own[o]
}

// ownOOMs is how many processes in the owner's directories were killed for want of memory,
// by whatever limit; false: it has none of the memory controller.
func (t *Tree) ownOOMs(o owner) (int64, bool) {
	for _, dir := range t.ownOf(o) {
		if _, err := os.Stat(dir + "/memory.oom_control"); err == nil {
			return field(dir+"/memory.oom_control", "oom_kill"), true
		}
	}
	return 0, false
}

// Unlimit removes the v1 directories of a process of which nothing is left. What the kernel
// does not remove yet is tried again, in ever longer pauses: somebody may have left the
// process's tree and not its limits.
func (t *Tree) Unlimit(slot, gen uint32) { t.unlimit(owner{slot, gen}, time.Millisecond) }

func (t *Tree) unlimit(o owner, pause time.Duration) {
	if !t.removeOwn(o) {
		time.AfterFunc(pause, func() { t.unlimit(o, min(2*pause, 10*time.Second)) })
	}
}

// removeOwn is false while somebody is in one of the owner's directories.
func (t *Tree) removeOwn(o owner) bool {
	dirs := t.ownOf(o)
	if len(dirs) == 0 {
		return true
	}
	for _, dir := range dirs {
		kills := field(dir+"/memory.oom_control", "oom_kill")
		switch err := removeDir(dir); err {
		case nil:
			if n := t.nestOfDir(dir); n != nil {
				n.ownOOMs.Add(kills)
			}
		case unix.EBUSY:
			return false
		}
	}
	t.mu.Lock()
	delete(t.own, o)
	t.mu.Unlock()
	return true
}

// nestOfDir is the nest that a directory of v1 is in, if a process was placed there.
func (t *Tree) nestOfDir(dir string) *Nest {
	name := filepath.Base(filepath.Dir(dir))
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.nests {
		if n.name == name {
			return n
		}
	}
	return nil
}

// findOwn finds the directories that a keeper before has made.
func (t *Tree) findOwn() {
	t.own = map[owner][]string{}
	look := func(in, prefix string) (nests []string) {
		entries, _ := os.ReadDir(in)
		for _, e := range entries {
			name, ok := strings.CutPrefix(e.Name(), prefix)
			if !ok || !e.IsDir() {
				continue
			}
			if o, ok := ownerOf(name); ok {
				t.own[o] = append(t.own[o], filepath.Join(in, e.Name()))
			} else if strings.HasPrefix(name, nestPrefix) {
				nests = append(nests, filepath.Join(in, name))
			}
		}
		return nests
	}
	seen := map[string]bool{}
	for _, c := range t.v1 {
		if seen[c.root] {
			continue
		}
		seen[c.root] = true
		look(filepath.Dir(c.root), filepath.Base(c.root)+".")
		for _, nest := range look(c.root, "") {
			look(nest, "")
		}
	}
}

// inNest reports whether an owner's directory is below a nest, and not beside the tree. The
// place alone says it: beside the tree, the parent is the machine's, and has any name.
func (t *Tree) inNest(dir string) bool {
	return slices.ContainsFunc(t.v1, func(c controller) bool { return filepath.Dir(filepath.Dir(dir)) == c.root })
}

// Sweep removes the v1 directories that a keeper before has made for processes that are
// over, or did not come to their start. live reports whether anything of one is left.
func (t *Tree) Sweep(live func(slot, gen uint32) bool) {
	for _, o := range t.owners() {
		if !live(o.slot, o.gen) {
			t.unlimit(o, time.Millisecond)
		}
	}
}

func (t *Tree) owners() []owner {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.own))
}

// endOwn kills what a former daemon left in the v1 directories and removes them, without
// those of the slots in keep and of nests. With a tree it has ended already.
func (t *Tree) endOwn(logf func(string, ...any), keep map[uint32]bool) {
	for _, o := range t.owners() {
		dirs := t.ownOf(o)
		if len(dirs) == 0 || keep[o.slot] || t.inNest(dirs[0]) {
			continue
		}
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			left := 0
			for _, dir := range dirs {
				left += killIn(dir)
			}
			if left == 0 {
				break
			}
			logf("ending what a former daemon left behind in %s", dirs[0])
		}
		t.unlimit(o, time.Millisecond)
	}
}

// killIn kills who is in a directory of v1, and returns how many that were.
func killIn(dir string) (n int) {
	for _, pid := range membersOf(dir) {
		n++
		pidfd.Signal(pid, unix.SIGKILL, func() bool { return slices.Contains(membersOf(dir), pid) })
	}
	return n
}

// unsupported says of a limit that neither version of cgroups has its controller.
func (t *Tree) unsupported(what, controller string) error {
	v2 := "cgroup v2 has no controller \"" + controller + "\" in " + t.root
	if t.root == "" {
		v2 = "of cgroup v2: " + t.why
	}
	return fmt.Errorf("%s needs the cgroup controller %q, and there is none that tend may write (%s; nor has cgroup v1 one): %w",
		what, controller, v2, process.ErrUnsupported)
}
