package observe

import (
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// Tree returns the pids of the leader, of its session, of its own cgroup if it has one, and
// of all descendants, in ascending order, without those that are dead and only not reaped yet. session is the
// number of the session in which the leader was started, if it does not lead that, and no
// other program is in it; else 0. Empty: nothing is left.
func Tree(leader, session int) []int {
	pids, _ := tree(leader, session)
	return pids
}

func tree(leader, session int) ([]int, map[int]procfs.Stat) {
	stats := processTable()
	in := map[int]bool{}
	var pids []int
	add := func(pid int) {
		in[pid] = true
		if s := stats[pid]; !s.Dead() {
			pids = append(pids, pid)
		}
	}
	group := ownGroup(leader, stats)
	for pid, s := range stats {
		if pid == leader || s.Session == leader || session != 0 && s.Session == session || group != "" && isBelow(groupOf(pid), group) {
			add(pid)
		}
	}
	for grew := true; grew; {
		grew = false
		for pid, s := range stats {
			if !in[pid] && in[s.PPID] {
				add(pid)
				grew = true
			}
		}
	}
	slices.Sort(pids)
	return pids, stats
}

// ownGroup returns the cgroup that was made for the leader, or "": a leader in
// the group of its parent has none of its own.
func ownGroup(leader int, stats map[int]procfs.Stat) string {
	s, ok := stats[leader]
	if !ok {
		return ""
	}
	own, parent := groupOf(leader), groupOf(s.PPID)
	if parent == "" || own == parent {
		return ""
	}
	return own
}

// groupOf returns the path of a process's cgroup in the unified hierarchy, or
// "" if there is none or it can't be read.
func groupOf(pid int) string {
	b, err := procfs.Read(pid, "cgroup")
	if err != nil {
		return ""
	}
	return parseCgroup(b)
}

// isBelow reports whether a cgroup is another or lies within it.
func isBelow(path, group string) bool {
	rest, ok := strings.CutPrefix(path, group)
	return ok && (rest == "" || rest[0] == '/')
}

// processTable reads the state of every process there is.
func processTable() map[int]procfs.Stat {
	table := map[int]procfs.Stat{}
	pids, _ := procfs.PIDs()
	for _, pid := range pids {
		if s, ok := procfs.ReadStat(pid); ok {
			table[pid] = s
		}
	}
	return table
}
