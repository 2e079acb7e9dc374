//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// roles are the pids of the daemon's parts.
type roles map[string]int

func (d *daemon) roles(ctx context.Context) roles {
	status := must(d.sdk.Status(ctx))
	for _, name := range []string{"anchor", "keeper", "server"} {
		if status.Roles[name] == 0 {
			fail("the daemon has no %s at the moment", name)
		}
	}
	return status.Roles
}

// usage is the processor time of each role, user and system. The kernel counts
// it exactly and reports it in steps of 10 ms.
type usage map[string]time.Duration

func (r roles) cpu() usage {
	u := usage{}
	for name, pid := range r {
		stat, ok := procfs.ReadStat(pid)
		if !ok {
			fail("/proc/%d/stat of %s cannot be read", pid, name)
		}
		u[name] = time.Duration(stat.User+stat.System) * procfs.Tick
	}
	return u
}

// during adds what is used while f runs.
func (u usage) during(r roles, f func()) {
	before := r.cpu()
	f()
	u.add(before, r.cpu())
}

// add adds what was used between two readings.
func (u usage) add(before, after usage) {
	for name := range after {
		u[name] += after[name] - before[name]
	}
}

// per returns the seconds a unit of all roles together, and the text of each.
func (u usage) per(units float64) (sum float64, each string) {
	var parts []string
	for _, name := range []string{"anchor", "keeper", "server"} {
		v := u[name].Seconds() / units
		sum += v
		parts = append(parts, fmt.Sprintf("%s %.2f", name, v))
	}
	return sum, strings.Join(parts, ", ")
}

// memory is what processes occupy, in KiB.
type memory struct {
	rss, pss float64
}

func (r roles) memory(names ...string) (sum memory) {
	for _, name := range names {
		m := memoryOf(r[name])
		sum.rss += m.rss
		sum.pss += m.pss
	}
	return sum
}

// memoryOf reads smaps_rollup, whose Rss is exact where VmRSS of status may
// lag behind by some pages a thread.
func memoryOf(pid int) (m memory) {
	f := must(os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid)))
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		name, rest, _ := strings.Cut(s.Text(), ":")
		n, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
		switch name {
		case "Rss":
			m.rss = n
		case "Pss":
			m.pss = n
		}
	}
	if m.rss == 0 {
		fail("pid %d: smaps_rollup has no Rss", pid)
	}
	return m
}
