//go:build linux

package keeper

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
)

// cgroups is the place where each process gets a cgroup v2 of its own, to find
// the whole tree and to end it. It needs no controller, so the "unified" tree
// beside v1 controllers does. Directories are named after slots and used
// again: making and removing one is a tenth of what a spawn costs. Except after
// a kill: recent kernels (seen on 6.18) also kill whatever is cloned into a
// group that was killed before, so that directory is removed and made anew.
type cgroups struct {
	root    string // "" if there is none
	rootFD  int    // of root, so that the way to it is not looked up for each process; or AT_FDCWD
	why     string // then the reason
	canKill bool   // cgroup.kill exists (Linux 5.14)

	mu      sync.Mutex
	killed  map[uint32]bool // slots whose directory must not be used again; guarded by mu
	limited map[uint32]bool // slots whose directory has limits set; guarded by mu
	last    error           // why a slot got no directory; guarded by mu
}

// findCgroups looks in mountinfo for a cgroup2 mount that shows our own group,
// and makes a directory of this name in it.
func findCgroups(name string) *cgroups {
	none := func(format string, a ...any) *cgroups { return &cgroups{why: fmt.Sprintf(format, a...)} }
	if why := cloneRefused(); why != "" {
		return none("%s", why)
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return none("%v", err)
	}
	mount, root, ok := cgroup2Mount(string(info))
	if !ok {
		return none("no cgroup2 filesystem is mounted")
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return none("%v", err)
	}
	own := ownCgroup(string(self))
	rel, err := filepath.Rel(root, own)
	if err != nil || strings.HasPrefix(rel, "..") {
		rel = "."
	}
	// A keeper that another keeper's anchor started is in that daemon's own
	// group already; its processes' groups go beside it, not below.
	var firstErr error
	for _, base := range []string{filepath.Join(mount, rel), mount} {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		probe := filepath.Join(dir, "probe")
		if err := os.Mkdir(probe, 0o755); err != nil && !os.IsExist(err) {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		g := &cgroups{root: dir, rootFD: unix.AT_FDCWD, killed: map[uint32]bool{}, limited: map[uint32]bool{}}
		if fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			g.rootFD = fd
		}
		_, err := os.Stat(filepath.Join(probe, "cgroup.kill"))
		g.canKill = err == nil
		return g
	}
	return none("cgroup2 at %s cannot be written: %v", mount, firstErr)
}

// cloneRefused says why no process can be forked into a cgroup here; "" if it
// can. Sandboxes filter clone3 because they cannot see its flags.
func cloneRefused() string {
	// Too small to be valid: a kernel that knows the call says so.
	_, _, err := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	switch {
	case err != unix.EINVAL:
		return fmt.Sprintf("clone3 is refused (%v)", err)
	case !kernelAtLeast(5, 7):
		return "Linux 5.7 is needed to fork into a cgroup"
	}
	return ""
}

// cgroup2Mount finds the cgroup2 mount in the text of mountinfo (proc(5)) and
// the group that is its root.
func cgroup2Mount(info string) (mount, root string, ok bool) {
	for line := range strings.Lines(info) {
		before, after, found := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if found && len(f) >= 5 && strings.HasPrefix(after, "cgroup2 ") {
			return unescapeMount(f[4]), unescapeMount(f[3]), true
		}
	}
	return "", "", false
}

func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// ownCgroup returns the v2 group in the text of /proc/self/cgroup.
func ownCgroup(self string) string {
	for line := range strings.Lines(self) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path
		}
	}
	return "/"
}

// ours reports whether a process with this text of /proc/PID/cgroup is in a group
// below root.
func (g *cgroups) ours(text string) bool {
	return g.root != "" && strings.Contains(text, "/"+filepath.Base(g.root)+"/")
}

func (g *cgroups) dir(slot uint32) string {
	return g.root + "/p" + strconv.FormatUint(uint64(slot), 10)
}

// below is the name of the slot's directory from rootFD.
func (g *cgroups) below(slot uint32) string {
	if g.rootFD == unix.AT_FDCWD {
		return g.dir(slot)
	}
	return "p" + strconv.FormatUint(uint64(slot), 10)
}

var errNoCgroup = fmt.Errorf("no cgroup tree: %w", unix.ENOTSUP)

// open returns a descriptor of the slot's directory for clone3, made at need.
func (g *cgroups) open(slot uint32) (int, error) {
	if g.root == "" {
		return -1, errNoCgroup
	}
	dir := g.below(slot)
	g.mu.Lock()
	if g.killed[slot] {
		if err := unix.Unlinkat(g.rootFD, dir, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
			g.mu.Unlock()
			return -1, err
		}
		delete(g.killed, slot)
	}
	g.mu.Unlock()
	fd, err := unix.Openat(g.rootFD, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		if err := unix.Mkdirat(g.rootFD, dir, 0o755); err != nil && err != unix.EEXIST {
			return -1, err
		}
		fd, err = unix.Openat(g.rootFD, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

// refused notes that a process goes without a cgroup of its own.
func (g *cgroups) refused(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = err
}

func (g *cgroups) setLimited(slot uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limited[slot] = true
}

// takeLimited reports whether a former owner's limits must be lifted.
func (g *cgroups) takeLimited(slot uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	had := g.limited[slot]
	delete(g.limited, slot)
	return had
}

func (g *cgroups) openEvents(slot uint32) (int, error) {
	return unix.Openat(g.rootFD, g.below(slot)+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// populated reads "populated 0|1" of an open cgroup.events; an unreadable one
// (the directory is gone) is empty.
func populated(fd int) bool { return hasEvent(fd, "populated 1") }

func hasEvent(fd int, line string) bool {
	var b [128]byte
	n, err := unix.Pread(fd, b[:], 0)
	return err == nil && bytes.Contains(b[:n], []byte(line))
}

func (g *cgroups) kill(slot uint32) error {
	if !g.canKill {
		return unix.ENOTSUP
	}
	g.mu.Lock()
	g.killed[slot] = true
	g.mu.Unlock()
	return writeFile(g.dir(slot)+"/cgroup.kill", "1")
}

// procs lists the members, of the group itself and of groups below it that a
// privileged descendant may have made.
func (g *cgroups) procs(slot uint32) ([]int, error) {
	if g.root == "" {
		return nil, errNoCgroup
	}
	var pids []int
	err := filepath.WalkDir(g.dir(slot), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path + "/cgroup.procs")
		for f := range bytes.FieldsSeq(b) {
			if pid, err := strconv.Atoi(string(f)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}

// oomKilled reports whether the kernel's OOM killer struck in the group. It
// needs the memory controller.
func (g *cgroups) oomKilled(slot uint32) bool {
	b, err := os.ReadFile(g.dir(slot) + "/memory.events")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(v) != "0"
		}
	}
	return false
}

// removeEmpty removes the directories of a former keeper that nobody is in. It
// is not known which of them were killed; one that somebody is still in may
// have been, a moment ago, and is not used again either.
func (g *cgroups) removeEmpty() {
	entries, _ := os.ReadDir(g.root)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range entries {
		if !e.IsDir() || unix.Rmdir(filepath.Join(g.root, e.Name())) == nil {
			continue
		}
		if slot, err := strconv.ParseUint(strings.TrimPrefix(e.Name(), "p"), 10, 32); err == nil {
			g.killed[uint32(slot)] = true
		}
	}
}

// endFormer kills what a former daemon left in the groups, and removes them, but
// for the slots in keep. It gives the kernel a bounded time.
func (g *cgroups) endFormer(logf func(string, ...any), keep map[uint32]bool) {
	if g.root == "" {
		return
	}
	entries, err := os.ReadDir(g.root)
	if err != nil {
		return
	}
	for _, e := range entries {
		if slot, err := strconv.ParseUint(strings.TrimPrefix(e.Name(), "p"), 10, 32); err == nil && keep[uint32(slot)] {
			continue
		}
		dir := filepath.Join(g.root, e.Name())
		fd, err := unix.Open(dir+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if populated(fd) {
			logf("ending what a former daemon left behind in %s", dir)
			if err := writeFile(dir+"/cgroup.kill", "1"); err != nil {
				logf("%s: %v", dir, err)
			}
			for end := time.Now().Add(time.Second); populated(fd) && time.Now().Before(end); {
				unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, 20)
			}
		}
		unix.Close(fd)
		unix.Rmdir(dir)
	}
}

// removeAll removes the whole tree, best effort: at shutdown. The kernel may
// need a moment after the last exit.
func (g *cgroups) removeAll() {
	if g.root == "" {
		return
	}
	for range 20 {
		g.removeEmpty()
		if err := unix.Rmdir(g.root); err == nil || err == unix.ENOENT {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func writeFile(path, s string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(s))
	return err
}
