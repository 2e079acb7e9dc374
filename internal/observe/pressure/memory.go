package pressure

import (
	"os"
	"strconv"
	"strings"
)

// Memory is how near to its limit the memory of a level is.
type Memory struct {
	// Level is the directory of the control group; "": the machine.
	Level string
	// Limit in bytes, with the swap that is free; 0: nothing is known.
	Limit int64
	// Working and Held are the used memory; see the package comment.
	Working, Held int64
	// Own is what the processes of the tree themselves hold of it.
	Own int64
}

// share is a part of the limit.
func (m *Memory) share(n int64) float64 {
	if m.Limit <= 0 {
		return 0
	}
	return float64(n) / float64(m.Limit)
}

// Memory returns the level that is nearest to its limit.
func (g *Group) Memory() Memory {
	machine := g.sys.fields("/proc/meminfo")
	swap := machine["SwapFree"]
	var nearest Memory
	if total, free := machine["MemTotal"], machine["MemAvailable"]; total > 0 && free <= total {
		nearest = Memory{Limit: total + swap, Working: total - free, Held: total - free}
	}
	for i, dir := range g.memory {
		m, ok := g.level(dir, i == len(g.memory)-1, swap)
		if ok && (nearest.Limit == 0 || m.share(m.Working) > nearest.share(nearest.Working)) {
			nearest = m
		}
	}
	return nearest
}

// level reads one group; false: it has no limit.
func (g *Group) level(dir string, last bool, swap int64) (Memory, bool) {
	if g.memoryV2 {
		return g.levelV2(dir, swap)
	}
	m := Memory{Level: dir}
	limit, ok := g.sys.number(dir + "/memory.limit_in_bytes")
	stat := g.sys.fields(dir + "/memory.stat")
	if around, there := stat["hierarchical_memory_limit"]; there && last && (!ok || around < limit) {
		limit, ok = around, true // of a group that cannot be seen
	}
	usage, known := g.sys.number(dir + "/memory.usage_in_bytes")
	if !ok || !known || limit == 0 {
		return m, false
	}
	m.Limit = limit
	if both, ok := g.sys.number(dir + "/memory.memsw.limit_in_bytes"); ok {
		used, _ := g.sys.number(dir + "/memory.memsw.usage_in_bytes")
		m.Limit += max(0, min(swap, both-used-max(0, limit-usage)))
	} else {
		m.Limit += swap
	}
	m.Working = max(0, usage-stat["total_inactive_file"])
	m.Held = max(0, m.Working-stat["total_active_file"])
	return m, true
}

func (g *Group) levelV2(dir string, swap int64) (Memory, bool) {
	m := Memory{Level: dir}
	limit, ok := g.sys.number(dir + "/memory.max")
	if high, there := g.sys.number(dir + "/memory.high"); there && (!ok || high < limit) {
		limit, ok = high, true
	}
	usage, known := g.sys.number(dir + "/memory.current")
	if !ok || !known || limit == 0 {
		return m, false
	}
	m.Limit = limit
	if most, ok := g.sys.number(dir + "/memory.swap.max"); ok {
		used, _ := g.sys.number(dir + "/memory.swap.current")
		m.Limit += max(0, min(swap, most-used))
	} else {
		m.Limit += swap
	}
	stat := g.sys.fields(dir + "/memory.stat")
	m.Working = max(0, usage-stat["inactive_file"])
	m.Held = max(0, m.Working-stat["active_file"])
	return m, true
}

// own is what processes hold themselves, in bytes.
func (s System) own(pids []int) (sum int64) {
	page := int64(os.Getpagesize())
	for _, pid := range pids {
		text, err := s.read("/proc/" + strconv.Itoa(pid) + "/statm")
		f := strings.Fields(text)
		if err != nil || len(f) < 3 {
			continue
		}
		resident, _ := amount(f[1])
		shared, _ := amount(f[2])
		sum += max(0, resident-shared) * page
	}
	return sum
}

// Stall is how much tasks have waited for memory, in percent of a time.
type Stall struct {
	Some10, Some60, Full10, Full60 float64
}

// Stall says how much the group waits for memory, or the machine if the kernel says
// nothing of the group; false: it says nothing at all.
func (g *Group) Stall() (Stall, bool) {
	text, err := g.sys.read(g.stallFile())
	if err != nil {
		return Stall{}, false
	}
	return parseStall(text)
}

const machineStall = "/proc/pressure/memory"

func (g *Group) stallFile() string {
	if len(g.unified) > 1 && g.sys.has(g.unified[0]+"/memory.pressure") {
		return g.unified[0] + "/memory.pressure"
	}
	return machineStall
}

// parseStall reads "some avg10=1.07 avg60=1.10 avg300=0.99 total=2599293870", and the
// same for full.
func parseStall(text string) (s Stall, ok bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		for _, word := range f {
			name, value, _ := strings.Cut(word, "=")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil || !(n >= 0 && n <= 100) {
				continue
			}
			switch f[0] + " " + name {
			case "some avg10":
				s.Some10, ok = n, true
			case "some avg60":
				s.Some60 = n
			case "full avg10":
				s.Full10 = n
			case "full avg60":
				s.Full60 = n
			}
		}
	}
	return s, ok
}
