package pressure

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// System names the directories where the kernel publishes its values. The zero value is
// this machine.
type System struct {
	// Root is put before each path, for files that were recorded elsewhere.
	Root string
}

func (s System) read(name string) (string, error) {
	b, err := os.ReadFile(s.Root + name)
	return string(b), err
}

// Group is the control groups that a process is in.
type Group struct {
	sys System
	// unified, memory and pids are directories from the group of the process up to the
	// last one that can be seen: of version 2, and of the controllers, in whatever
	// version each is.
	unified, memory, pids []string
	memoryV2, pidsV2      bool
}

// GroupOf finds the control groups of a process. Without any it is empty, and only the
// machine counts. If there is no such process, it returns an error.
func (s System) GroupOf(pid int) (*Group, error) {
	text, err := s.read("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := s.read("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	g := &Group{sys: s}
	g.unified = levels(mounts, text, "")
	// A controller is in one hierarchy alone; where both could have it, the one counts
	// that has its files.
	g.memory, g.memoryV2 = s.controller(mounts, text, "memory", "memory.limit_in_bytes", g.unified, "memory.current")
	g.pids, g.pidsV2 = s.controller(mounts, text, "pids", "pids.current", g.unified, "pids.current")
	return g, nil
}

// controller returns the levels of a controller, and whether it is of version 2.
func (s System) controller(mounts, text, name, oneFile string, unified []string, twoFile string) ([]string, bool) {
	one := levels(mounts, text, name)
	if slices.ContainsFunc(one, func(dir string) bool { return s.has(dir + "/" + oneFile) }) {
		return one, false
	}
	return unified, true
}

func (s System) has(name string) bool {
	_, err := os.Stat(s.Root + name)
	return err == nil
}

// levels returns the directories of the group that a process is in, and of those around
// it, by the texts of mountinfo and of /proc/PID/cgroup. controller is of version 1; ""
// is version 2.
func levels(mounts, text, controller string) (dirs []string) {
	group, ok := "", false
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && (controller == "" && f[0] == "0" && f[1] == "" || controller != "" && hasWord(f[1], controller)) {
			group, ok = f[2], true
		}
	}
	if !ok {
		return nil
	}
	for line := range strings.Lines(mounts) {
		before, after, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, of := strings.Fields(before), strings.Fields(after)
		if !found || len(f) < 5 || len(of) < 3 {
			continue
		}
		if controller == "" && of[0] != "cgroup2" || controller != "" && (of[0] != "cgroup" || !hasWord(of[2], controller)) {
			continue
		}
		root, mount := procfs.Unescape(f[3]), procfs.Unescape(f[4])
		// A mount may show a part of the hierarchy alone. A group that is outside of it
		// (/.. in a namespace of its own) is seen from the mount on.
		below, err := filepath.Rel(root, group)
		if err != nil || below == ".." || strings.HasPrefix(below, "../") {
			below = "."
		}
		for dir := path.Join(mount, below); ; dir = path.Dir(dir) {
			dirs = append(dirs, dir)
			if dir == mount || len(dir) <= len(mount) {
				return dirs
			}
		}
	}
	return nil
}

func hasWord(list, word string) bool {
	return slices.Contains(strings.Split(list, ","), word)
}

// number reads a file that holds one number; false: it is not there, or "max", or a
// number that stands for none.
func (s System) number(name string) (int64, bool) {
	text, err := s.read(name)
	if err != nil {
		return 0, false
	}
	return amount(strings.TrimSpace(text))
}

// unlimited is from where on a number of version 1 stands for no limit.
const unlimited = 1 << 62

func amount(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && n < unlimited
}

// fields reads lines "NAME NUMBER", as memory.stat has them. Names of /proc/meminfo end
// with a colon there, and their numbers are in KiB.
func (s System) fields(name string) map[string]int64 {
	text, err := s.read(name)
	if err != nil {
		return nil
	}
	all := map[string]int64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if n, ok := amount(f[1]); ok {
			if len(f) > 2 && f[2] == "kB" {
				n *= 1024
			}
			all[strings.TrimSuffix(f[0], ":")] = n
		}
	}
	return all
}

// OOMKills returns how many processes the kernel has killed so far because memory ran
// out, in the group or, if it does not count them, in the nearest group around it.
// False: no group counts them.
func (g *Group) OOMKills() (int64, bool) {
	for _, dir := range g.memory {
		if n, ok := g.sys.fields(dir + g.countFile())["oom_kill"]; ok {
			return n, true
		}
	}
	return 0, false
}

func (g *Group) countFile() string {
	if g.memoryV2 {
		return "/memory.events"
	}
	return "/memory.oom_control"
}

// counts is the directory whose count OOMKills has; "": none.
func (g *Group) counts() string {
	for _, dir := range g.memory {
		if g.sys.has(dir + g.countFile()) {
			return dir
		}
	}
	return ""
}

// CountsWith reports whether OOMKills counts the processes of another group, too.
func (g *Group) CountsWith(other *Group) bool {
	dir, others := g.counts(), other.counts()
	return dir != "" && (others == dir || strings.HasPrefix(others, dir+"/"))
}

// Members are the pids of the group and of those within it; nil: it is not known.
func (g *Group) Members() (pids []int) {
	if len(g.unified) < 2 { // the group of the whole machine is of nobody
		return nil
	}
	add := func(dir string) {
		text, err := g.sys.read(dir + "/cgroup.procs")
		if err != nil {
			return
		}
		for word := range strings.FieldsSeq(text) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	add(g.unified[0])
	entries, err := os.ReadDir(g.sys.Root + g.unified[0])
	if err != nil {
		return pids
	}
	for _, e := range entries {
		if e.IsDir() {
			add(g.unified[0] + "/" + e.Name())
		}
	}
	return pids
}
