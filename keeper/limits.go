//go:build linux

package keeper

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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
			return rlimitError(i, r, err)
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

func rlimitError(i int, r process.Rlimit, err error) error {
	return fmt.Errorf("limits.rlimits[%d] (resource %d, soft %d, hard %d): %w", i, r.Resource, r.Soft, r.Hard, err)
}

func setOOMScore(pid, adj int) error {
	return writeFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", strconv.Itoa(adj))
}
