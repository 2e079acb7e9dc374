//go:build linux

package keeper

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/tend-run/tend/process"
)

// limits are those of a process's cgroup. The others a child sets for itself
// (see gate.go).
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

// clear lifts what a former owner of the slot had: its cgroup is used again.
func (l *limits) clear() {
	if l.groups.takeLimited(l.slot) {
		l.lift()
	}
}

// impose sets the limits of the cgroup, before the program runs.
func (l *limits) impose() error {
	want := l.cgroupLimits()
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

func rlimitError(i int, r process.Rlimit, err error) error {
	return fmt.Errorf("limits.rlimits[%d] (resource %d, soft %d, hard %d): %w", i, r.Resource, r.Soft, r.Hard, err)
}

func setOOMScore(pid, adj int) error {
	return writeFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", strconv.Itoa(adj))
}
