//go:build linux

package keeper

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/contain"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// A stray is a descendant of one of our processes whose own parents have ended. The
// kernel gave it to a subreaper: the anchor or the launcher. A descendant may create
// its own session, change its cgroup, clear its environment, or fork twice: it still
// becomes a stray, or has a parent that does. So if there is no stray, the cgroup, the
// session and the parents identify all descendants.
//
// The cgroup, the session or the mark of a stray shows to which process it belongs. A
// stray without any of them may belong to any process that ran when the stray started.
// While it lives, it is unknown whether their trees are gone.
//
// A process that a role starts for itself also becomes a stray if the role dies. It
// belongs to no process: it inherits the roles' own mark.

// A mark is an rlimit that no program looks at and that every fork and exec keeps:
// RLIMIT_RTTIME, with a limit of some hundred thousand years, whose lower bits name
// the process. A descendant may change it, and then has no mark.
const (
	rlimitRTTime = 15
	markBit      = 1 << 62
)

// markOf is the mark of a process: 21 bits of this daemon's identity, 14 of the slot
// and 27 of its gen.
func (k *Keeper) markOf(r wire.Ref) uint64 {
	return markBit | uint64(k.identity.number&(1<<21-1))<<41 | uint64(r.Slot&(1<<14-1))<<27 | uint64(r.Gen&(1<<27-1))
}

// roleMark is the mark of the roles: no process is the owner of a slot by gen 0.
func (k *Keeper) roleMark() uint64 { return k.markOf(wire.Ref{Slot: board.Slots - 1}) }

// markRole gives a role the mark of roles, and so all that it starts from now on, other
// roles too. 0 is this process. A role that runs below another daemon's process has that
// one's mark: the other daemon needs it, and ours is for what dies before it.
func (k *Keeper) markRole(pid int) {
	var was unix.Rlimit
	if unix.Prlimit(pid, rlimitRTTime, nil, &was) != nil || was.Max != unix.RLIM_INFINITY || pid != 0 && was.Cur != was.Max {
		return
	}
	unix.Prlimit(pid, rlimitRTTime, &unix.Rlimit{Cur: k.roleMark(), Max: was.Max}, nil)
}

// stray is one of them, or a descendant of one.
type stray struct {
	pid     int
	started int64 // CLOCK_BOOTTIME, ns
	session int
	slot    int  // whose cgroup of ours it is in; -1: none
	first   bool // it is in the group of a container's pid 1: also while that is made, or ends
	mark    uint64
	below   int // the stray that it descends from, by pid
}

// server is the process of the server, which has the mark of roles from now on: its anchor
// may have started it before the keeper gave that mark to the anchor. It is known by the
// anchor's word, too, as long as it has not come to its lock.
func (k *Keeper) server() int {
	pid := k.run.Holder("server")
	if pid == 0 {
		pid = k.run.Started("server")
	}
	if pid != 0 && k.line.server.Swap(int64(pid)) != int64(pid) {
		k.markRole(pid)
	}
	return pid
}

// children of a process, of all its threads; ok is false where the kernel does not
// list them (CONFIG_PROC_CHILDREN).
func children(pid int) (pids []int, ok bool) {
	dir := procfs.Path(pid, "task")
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil, !noDescriptor(err) // it is gone
	}
	for _, t := range tasks {
		b, err := os.ReadFile(dir + "/" + t.Name() + "/children")
		if err != nil {
			if _, serr := os.Stat(dir + "/" + t.Name() + "/stat"); serr == nil {
				return nil, false
			}
			continue
		}
		ok = true
		pids = procfs.AppendPIDs(pids, b)
	}
	return pids, true
}

// strays lists all that may belong to a process of a container, or of none: what is inside of other
// containers does not, whatever mark it has. complete: there are no others.
func (k *Keeper) strays(of *heldContainer) (all []stray, complete bool) {
	roots, complete := k.fallen()
	if len(roots) == 0 {
		return nil, complete // as it is most often
	}
	server := k.server()
	if len(roots) == 1 && roots[0] == server {
		return nil, complete // or this
	}
	ours := map[int]bool{os.Getpid(): true, server: true, k.run.Holder("anchor"): true}
	for i := range k.board.Used() {
		if p := k.procs[i].Load(); p != nil && p.slot.Flags()&board.FlagExited == 0 {
			ours[p.slot.PID()] = true
		}
	}
	containers := k.containers.pids()
	own := -1
	if of != nil {
		own = int(of.first.Load())
	}
	elsewhere := k.elsewhere(of)
	seen := map[int]bool{}
	var walk func(pid, root, depth int)
	walk = func(pid, root, depth int) {
		if ours[pid] || seen[pid] || depth > 1000 {
			return
		}
		seen[pid] = true
		if containers[pid] { // it is nobody's; what is below it is of programs inside
			if pid != own {
				return
			}
		} else if pid == root && elsewhere(pid) {
			return
		} else if s, ok := k.strayOf(pid); ok && !s.first && !(pid == root && k.endHelper(&s)) {
			s.below = root
			all = append(all, s)
		}
		below, ok := children(pid)
		complete = complete && ok
		for _, c := range below {
			walk(c, root, depth+1)
		}
	}
	for _, pid := range roots {
		walk(pid, pid, 0)
	}
	return all, complete
}

// elsewhere returns what reports whether a stray is inside of another container than that: one that its
// program made as a child of a keeper that has died since (CLONE_PARENT). There may be thousands,
// at each exit on the machine: of each only a link is read.
func (k *Keeper) elsewhere(of *heldContainer) func(pid int) bool {
	ours := pidSpace(os.Getpid())
	var containers map[string]*heldContainer // by their spaces; nil: nobody was in another than ours
	return func(pid int) bool {
		space := pidSpace(pid)
		if space == "" || space == ours {
			return false
		}
		if containers == nil {
			containers = k.containers.spaces()
		}
		b := containers[space]
		return b != nil && b != of
	}
}

// pidSpace names the pid namespace of a process, which it cannot leave; "": it has ended.
func pidSpace(pid int) string {
	var name [64]byte
	n, _ := unix.Readlink(procfs.Path(pid, "ns/pid"), name[:]) // -1 with an error
	return string(name[:max(n, 0)])
}

// endHelper ends a child of a dead keeper that was to hold a namespace for a moment, and
// reports whether the stray is one.
func (k *Keeper) endHelper(s *stray) bool {
	if s.slot >= 0 || s.mark != 0 && s.mark != k.roleMark() || !contain.Helper(s.pid) {
		return false
	}
	s.kill()
	return true
}

// strayOf reads what shows to which process of ours a process belongs; false: it has
// ended.
func (k *Keeper) strayOf(pid int) (s stray, ok bool) {
	b, err := k.lastFile.read(procfs.Path(pid, "stat"))
	if err != nil {
		return s, false
	}
	stat, ok := procfs.ParseStat(b)
	if !ok || stat.Dead() {
		return s, false
	}
	s = stray{pid: pid, slot: -1, started: stat.Started(), session: stat.Session}
	if text, ok := k.groupOf(pid); ok {
		s.slot, s.first = cgroup.SlotOf(text), cgroup.IsFirst(text)
	}
	if limits, err := k.lastFile.read(procfs.Path(pid, "limits")); err == nil {
		s.mark = markIn(limits)
	}
	return s, true
}

// markIn finds the mark in the text of /proc/PID/limits; 0: none.
func markIn(limits []byte) uint64 {
	for line := range bytes.Lines(limits) {
		if v, ok := bytes.CutPrefix(line, []byte("Max realtime timeout")); ok {
			f := bytes.Fields(v)
			if len(f) == 0 {
				return 0
			}
			n, err := strconv.ParseUint(string(f[0]), 10, 64)
			if err != nil || n&markBit == 0 || n >= 1<<63 {
				return 0
			}
			return n
		}
	}
	return 0
}

// whose reports whether a stray belongs to p. known is false if nothing shows to
// which process it belongs, so that it may be p. p.mu is held.
func (k *Keeper) whose(p *proc, s *stray) (is, known bool) {
	switch {
	case p.began > 0 && procfs.StartedBefore(s.started, p.began):
		return false, true
	case s.mark == k.markOf(p.ref):
		return true, true
	case s.mark != 0 && s.mark>>41 == k.markOf(p.ref)>>41: // of another process of ours
		return false, true
	case s.slot >= 0:
		return p.group && s.slot == int(p.ref.Slot), true
	case s.session == p.pid: // the number is not used again while the session has members
		return !p.exited || !procfs.Runs(p.pid), true
	case s.session == p.session():
		return !procfs.Runs(p.session()), true
	}
	return false, false
}

// escaped lists the strays that belong to p, and those that may belong to it. complete:
// there are no others. p.mu is held.
func (k *Keeper) escaped(p *proc) (its, unknown []stray, complete bool) {
	b := p.container.Load()
	if b != nil && p.group {
		return nil, nil, true // no program inside has a way out of its group
	}
	all, complete := k.strays(b)
	if len(all) == 0 {
		return nil, nil, complete
	}
	root := map[int]bool{} // strays whose descendants are p's as they are
	for i := range all {
		if is, _ := k.whose(p, &all[i]); is {
			root[all[i].below] = root[all[i].below] || all[i].pid == all[i].below
		}
	}
	for i := range all {
		is, known := k.whose(p, &all[i])
		switch {
		case is, !known && root[all[i].below]:
			its = append(its, all[i])
		case !known:
			unknown = append(unknown, all[i])
		}
	}
	return its, unknown, complete
}

// open opens a process, and makes sure that it is the one that was seen.
func (s *stray) open() (pidfd int, ok bool) {
	fd, err := unix.PidfdOpen(s.pid, 0)
	if err != nil {
		return -1, false
	}
	if procfs.Started(s.pid) != s.started {
		unix.Close(fd)
		return -1, false
	}
	return fd, true
}

func (s *stray) kill() {
	pidfd.Signal(s.pid, unix.SIGKILL, func() bool { return procfs.Started(s.pid) == s.started })
}

// outside lists the descendants of the leader that have left its cgroup and whose
// parents still lead to it. p.mu is held.
func (k *Keeper) outside(p *proc) (out []stray) {
	if p.exited {
		return nil
	}
	seen := map[int]bool{}
	var walk func(pid, depth int)
	walk = func(pid, depth int) {
		if seen[pid] || depth > 1000 {
			return
		}
		seen[pid] = true
		if k.slotOf(pid) != int(p.ref.Slot) { // the leader, too, may have moved itself
			if s, ok := k.strayOf(pid); ok {
				out = append(out, s)
			}
		}
		below, _ := children(pid)
		for _, c := range below {
			walk(c, depth+1)
		}
	}
	walk(p.pid, 0)
	return out
}

// slotOf is the slot whose cgroup of ours a process is in; -1: none.
func (k *Keeper) slotOf(pid int) int {
	if text, ok := k.groupOf(pid); ok {
		return cgroup.SlotOf(text)
	}
	return -1
}

// groupOf is the text of /proc/PID/cgroup of a process in a group of ours.
func (k *Keeper) groupOf(pid int) (text string, ok bool) {
	b, err := k.lastFile.read(procfs.Path(pid, "cgroup"))
	text = string(b)
	return text, err == nil && k.groups.Contains(text)
}

// nameOf is the name of a process as the kernel has it (comm), without what a
// terminal would obey.
func nameOf(pid int) string {
	b, err := procfs.Read(pid, "comm")
	if err != nil {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, strings.TrimSuffix(string(b), "\n"))
}
