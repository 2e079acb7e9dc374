//go:build linux

package keeper

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/orphan"
	"github.com/tend-run/tend/keeper/rundir"
	"github.com/tend-run/tend/process"
)

// limits of one process. They are set while the child stands at its first
// instruction (PTRACE_TRACEME, then the stop that exec makes), so no part of
// the program ever runs without them.
type limits struct {
	spec   process.Limits
	group  string // the process's cgroup v2 directory, or ""
	groups *cgroups
	slot   uint32
}

func limitsOf(s *process.Spec, g *cgroups, p *proc) *limits {
	l := &limits{spec: s.Limits, groups: g, slot: p.ref.Slot}
	if p.group {
		l.group = g.dir(p.ref.Slot)
	}
	return l
}

func (l *limits) cgroupLimits() []struct{ file, controller, value string } {
	var out []struct{ file, controller, value string }
	add := func(file, controller string, v int64) {
		if v > 0 {
			out = append(out, struct{ file, controller, value string }{file, controller, strconv.FormatInt(v, 10)})
		}
	}
	add("memory.max", "memory", l.spec.MemoryMax)
	add("pids.max", "pids", l.spec.PidsMax)
	add("cpu.weight", "cpu", l.spec.CPUWeight)
	return out
}

// any: the child must be stopped for its limits.
func (l *limits) any() bool {
	return len(l.spec.Rlimits) > 0 || l.spec.Nice != 0 || l.spec.OOMScoreAdj != 0
}

// prepare sets the limits of the cgroup, before the fork. A slot's group is
// used again, so limits of a former owner are lifted.
func (l *limits) prepare() error {
	want := l.cgroupLimits()
	if l.groups.takeLimited(l.slot) {
		l.lift()
	}
	if len(want) == 0 {
		return nil
	}
	if l.group == "" {
		return fmt.Errorf("limits of memory, pids and cpu need a cgroup v2 tree that tend may write; here there is none: %w", process.ErrUnsupported)
	}
	l.groups.setLimited(l.slot)
	for _, w := range want {
		path := l.group + "/" + w.file
		if _, err := os.Stat(path); err != nil {
			// Not switched on for our subtree yet.
			for _, dir := range []string{parentDir(l.groups.root), l.groups.root} {
				writeFile(dir+"/cgroup.subtree_control", "+"+w.controller)
			}
		}
		if err := writeFile(path, w.value); err != nil {
			return fmt.Errorf("limit %s needs the cgroup v2 controller %q, which is not available to tend here (%v): %w", w.file, w.controller, err, process.ErrUnsupported)
		}
	}
	return nil
}

func (l *limits) lift() {
	for _, f := range [][2]string{{"memory.max", "max"}, {"pids.max", "max"}, {"cpu.weight", "100"}} {
		writeFile(l.group+"/"+f[0], f[1])
	}
}

func parentDir(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// apply sets the limits of the stopped child, calls ready, and lets it go. The
// caller is on the thread that forked it.
func (l *limits) apply(pid int, ready func()) error {
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the child to stop: %w", err)
		}
		break
	}
	if !ws.Stopped() {
		return fmt.Errorf("the child ended before its limits were set")
	}
	if err := l.set(pid); err != nil {
		return err
	}
	ready()
	if err := unix.PtraceDetach(pid); err != nil {
		return fmt.Errorf("let the child go: %w", err)
	}
	return nil
}

// set gives one process its limits.
func (l *limits) set(pid int) error {
	for i, r := range l.spec.Rlimits {
		if err := unix.Prlimit(pid, r.Resource, &unix.Rlimit{Cur: r.Soft, Max: r.Hard}, nil); err != nil {
			return fmt.Errorf("limits.rlimits[%d] (resource %d, soft %d, hard %d): %w", i, r.Resource, r.Soft, r.Hard, err)
		}
	}
	if l.spec.Nice != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, pid, l.spec.Nice); err != nil {
			return fmt.Errorf("limits.nice %d: %w", l.spec.Nice, err)
		}
	}
	if l.spec.OOMScoreAdj != 0 {
		if err := setOOMScore(pid, l.spec.OOMScoreAdj); err != nil {
			return fmt.Errorf("limits.oom_score_adj %d: %w", l.spec.OOMScoreAdj, err)
		}
	}
	return nil
}

// settleLimits is for a child whose keeper died before it had let it go. One
// that stood at its first instruction dies by that: the stop is a SIGTRAP of
// ptrace(2), which ends it when its tracer is gone. One that had not come that
// far runs, free of limits, and gets them now, with all that it may have forked;
// or it is still on its way there, where it would be stopped by its new parent.
// settleLimits reports whether the program runs, or has run.
func (k *Keeper) settleLimits(p *proc, pid int, spec *process.Spec, reserved time.Time) bool {
	thaw := k.groups.freeze(p.ref.Slot, forkedWait) // who stands still now is not about to die
	defer thaw()
	if _, _, alive := procStat(pid); alive {
		if !executes(pid) {
			return false
		}
		l := limitsOf(spec, k.groups, p)
		for _, member := range k.members(p) {
			if err := l.set(member); err != nil {
				k.logf("process %s: limits of pid %d: %v", p.id, member, err)
			}
		}
		return true
	}
	for end := time.Now().Add(forkedWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if e := orphan.Find(k.run.Path(rundir.Orphans), pid, reserved); e != nil {
			return e.Signal != int(unix.SIGTRAP)
		}
	}
	return true
}

// executes reports whether a child that stands still has begun its program: it
// is no copy of a keeper any more, and not stopped at the first instruction.
func executes(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if i := bytes.LastIndexByte(stat, ')'); err != nil || i < 0 || bytes.HasPrefix(stat[i:], []byte(") t")) {
		return false
	}
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil && !strings.Contains(exe, "tend-keeper")
}

func setOOMScore(pid, adj int) error {
	return writeFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", strconv.Itoa(adj))
}
