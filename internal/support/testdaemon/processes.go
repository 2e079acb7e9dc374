//go:build linux

package testdaemon

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// Processes lists the roles and all that is below them, a line for each: what tells to
// which process of the daemon it belongs, and what it waits for.
func (d *Daemon) Processes() string {
	role := map[int]string{}
	for name, pid := range d.Roles() {
		role[pid] = name
	}
	below := map[int][]int{}
	stats := map[int]procfs.Stat{}
	all, _ := procfs.PIDs()
	for _, pid := range all {
		if s, ok := procfs.ReadStat(pid); ok {
			stats[pid] = s
			below[s.PPID] = append(below[s.PPID], pid)
		}
	}
	var out strings.Builder
	var walk func(pid, depth int)
	walk = func(pid, depth int) {
		s := stats[pid]
		age := time.Duration(procfs.BootTime() - s.Started()).Round(10 * time.Millisecond)
		fmt.Fprintf(&out, "%s%d %s %s %c, for %v, session %d, group %s, mark %s, waits in %s\n", strings.Repeat("  ", depth), pid, role[pid],
			word(pid, "comm"), s.State, age, s.Session, field(pid, "cgroup", "0::"), field(pid, "limits", "Max realtime timeout"),
			word(pid, "wchan"))
		slices.Sort(below[pid])
		for _, c := range below[pid] {
			walk(c, depth+1)
		}
	}
	if launcher := d.cmd.Process.Pid; stats[launcher].PPID > 0 {
		walk(launcher, 0)
	}
	for name, pid := range d.Roles() {
		if s := stats[pid]; s.PPID == 0 || s.PPID == 1 { // it has lost its launcher, or has just ended
			fmt.Fprintf(&out, "the %s:\n", name)
			walk(pid, 1)
		}
	}
	return out.String()
}

// Dump has a role write to the daemon's log what each of its goroutines does. It ends by
// that, and another one is started.
func (d *Daemon) Dump(role string) {
	pid := d.Roles()[role]
	if pid == 0 || syscall.Kill(pid, syscall.SIGQUIT) != nil {
		return
	}
	for start := time.Now(); d.Roles()[role] == pid && time.Since(start) < patience; {
		time.Sleep(backoff.Next(start))
	}
}

func word(pid int, name string) string {
	b, _ := procfs.Read(pid, name)
	return strings.TrimSpace(string(b))
}

// field is the first word behind a prefix.
func field(pid int, name, prefix string) string {
	b, _ := procfs.Read(pid, name)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(strings.TrimPrefix(line, prefix)); strings.HasPrefix(line, prefix) && len(f) > 0 {
			return f[0]
		}
	}
	return "-"
}
