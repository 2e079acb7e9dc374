package pressure

import (
	"os"
	"strconv"
	"strings"
)

// Count is how many of a thing there are, and how many there may be; Limit 0: no limit
// is known.
type Count struct {
	Name        string // whose it is
	Used, Limit int64
}

func (c *Count) share() float64 {
	if c.Limit <= 0 {
		return 0
	}
	return float64(c.Used) / float64(c.Limit)
}

// Disk is how much room there is below a directory.
type Disk struct {
	Dir          string
	Size, Free   int64 // bytes; Free is what a program without rights may use
	Inodes, Left int64 // 0 Inodes: it has no bound
}

// Sample is what the kernel says at a moment.
type Sample struct {
	Memory Memory
	// Stall counts if Stalls is set.
	Stall  Stall
	Stalls bool
	// Descriptors of the process that is nearest to its limit, and the tasks of the
	// group that is.
	Descriptors, Tasks Count
	// Processes of the tree.
	Processes int
	Disks     []Disk
}

// Look reads the values of a group, of processes in it, and of the disks of
// directories. Values that cannot be read are omitted.
func (s System) Look(g *Group, pids []int, dirs []string) *Sample {
	out := &Sample{Memory: g.Memory(), Tasks: g.tasks(), Descriptors: s.descriptors(pids), Processes: len(pids)}
	out.Memory.Own = s.own(pids)
	out.Stall, out.Stalls = g.Stall()
	for _, dir := range dirs {
		if d, ok := diskOf(dir); ok {
			out.Disks = append(out.Disks, d)
		}
	}
	return out
}

// tasks returns the level that is nearest to the bound of its processes and threads.
func (g *Group) tasks() (nearest Count) {
	for _, dir := range g.pids {
		limit, ok := g.sys.number(dir + "/pids.max")
		used, known := g.sys.number(dir + "/pids.current")
		c := Count{Name: dir, Used: used, Limit: limit}
		if ok && known && limit > 0 && c.share() >= nearest.share() {
			nearest = c
		}
	}
	return nearest
}

// maxCounted bounds the descriptors of a process that are counted one by one.
const maxCounted = 1 << 20

// descriptors returns the process that is nearest to its soft limit.
func (s System) descriptors(pids []int) (nearest Count) {
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid)
		text, err := s.read(dir + "/limits")
		if err != nil {
			continue
		}
		limit, ok := softLimit(text, "Max open files")
		if !ok || limit == 0 {
			continue
		}
		c := Count{Name: "pid " + strconv.Itoa(pid), Used: s.open(dir + "/fd"), Limit: limit}
		if c.share() >= nearest.share() {
			nearest = c
		}
	}
	return nearest
}

// open counts the entries of a directory of descriptors. Since Linux 6.2 its size is
// their number.
func (s System) open(dir string) int64 {
	if s.Root == "" {
		if st, err := os.Stat(dir); err == nil && st.Size() > 0 {
			return st.Size()
		}
	}
	f, err := os.Open(s.Root + dir)
	if err != nil {
		return 0
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxCounted)
	return int64(len(names))
}

// softLimit reads a line of /proc/PID/limits: "Max open files  1024  4096  files".
func softLimit(text, name string) (int64, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			f := strings.Fields(rest)
			if len(f) == 0 {
				return 0, false
			}
			return amount(f[0])
		}
	}
	return 0, false
}
