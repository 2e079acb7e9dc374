package adopt

import (
	"os"
	"sort"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// member is a process of a tree, by what names it for ever.
type member struct {
	pid   int
	start int64 // as procfs.Stat.Start
}

// tree returns what lives of the tree, the process itself first. p.mu is held.
func (p *Process) tree() ([]member, error) {
	pids, err := procfs.PIDs()
	if err != nil {
		return nil, err
	}
	stats := make(map[int]procfs.Stat, len(pids))
	for _, pid := range pids {
		if s, ok := procfs.ReadStat(pid); ok {
			stats[pid] = s
		}
	}
	// A daemon that somebody has started below the process is not of the service.
	foreign := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && pid != p.id.PID && !foreign[pid]; pid = stats[pid].PPID {
		foreign[pid] = true
	}
	leader, there := stats[p.id.PID]
	ours := !there || leader.Start == p.id.Start // else the pid is another's, and so is a session of that number
	in := map[int]bool{}
	for pid, s := range stats {
		seen, known := p.seen[pid]
		in[pid] = !foreign[pid] && (pid == p.id.PID && ours || known && seen == s.Start || p.id.Leads && ours && s.Session == p.id.PID)
	}
	for grew := true; grew; {
		grew = false
		for pid, s := range stats {
			if !in[pid] && !foreign[pid] && in[s.PPID] {
				in[pid], grew = true, true
			}
		}
	}
	clear(p.seen)
	var all []member
	for pid, s := range stats {
		if in[pid] && !s.Dead() {
			p.seen[pid] = s.Start
			all = append(all, member{pid, s.Start})
		}
	}
	sort.Slice(all, func(i, j int) bool { // slices.SortFunc is compiled for each type
		a, b := all[i].pid, all[j].pid
		return b != p.id.PID && (a == p.id.PID || a < b)
	})
	return all, nil
}
