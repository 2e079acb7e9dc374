package observe

import (
	"os"
	"slices"
	"strconv"
)

// Tree returns the pids of the leader's session and of all descendants, in
// ascending order, without those that are dead and only not reaped yet. Empty:
// nothing is left.
func Tree(leader int) []int {
	pids, _ := tree(leader)
	return pids
}

func tree(leader int) ([]int, map[int]stat) {
	stats := processTable()
	in := map[int]bool{}
	var pids []int
	add := func(pid int) {
		in[pid] = true
		if s := stats[pid]; s.alive() {
			pids = append(pids, pid)
		}
	}
	for pid, s := range stats {
		if pid == leader || s.session == leader {
			add(pid)
		}
	}
	for grew := true; grew; {
		grew = false
		for pid, s := range stats {
			if !in[pid] && in[s.ppid] {
				add(pid)
				grew = true
			}
		}
	}
	slices.Sort(pids)
	return pids, stats
}

// processTable reads the state of every process there is.
func processTable() map[int]stat {
	table := map[int]stat{}
	dir, err := os.Open("/proc")
	if err != nil {
		return table
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if s, ok := parseStat(b); ok {
			table[pid] = s
		}
	}
	return table
}
