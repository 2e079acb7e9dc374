package procfs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// Path is the name of a file that is about a process: /proc/PID/name.
func Path(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// Read reads a file that is about a process.
func Read(pid int, name string) ([]byte, error) { return os.ReadFile(Path(pid, name)) }

// ReadStat reads /proc/PID/stat; false: there is no such process, or no free
// descriptor.
func ReadStat(pid int) (Stat, bool) {
	fd, err := unix.Open(Path(pid, "stat"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Stat{}, false
	}
	defer unix.Close(fd)
	var b [1024]byte // the kernel makes it of 52 numbers and a short name
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return Stat{}, false
	}
	return ParseStat(b[:n])
}

// Runs reports whether a process has the number, and has not ended.
func Runs(pid int) bool {
	s, ok := ReadStat(pid)
	return ok && !s.Dead()
}

// Started is Stat.Started of a process; 0 if that is not known. A zombie has it
// too.
func Started(pid int) int64 {
	s, _ := ReadStat(pid)
	return s.Started()
}

// InnerPID is the pid of a process in the innermost pid namespace that it is in; 0: it
// is in none but ours, or not there.
func InnerPID(pid int) int {
	b, err := Read(pid, "status")
	if err != nil {
		return 0
	}
	return parseInner(b)
}

func parseInner(status []byte) int {
	_, rest, ok := bytes.Cut(status, []byte("\nNSpid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	pids := bytes.Fields(line)
	if !ok || len(pids) < 2 {
		return 0
	}
	n, err := strconv.Atoi(string(pids[len(pids)-1]))
	if err != nil {
		return 0
	}
	return n
}

// PIDs lists all processes, in no order.
func PIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// Children lists the children of a process, dead ones too, in no order; none if the
// kernel does not tell (CONFIG_PROC_CHILDREN). One that comes or goes meanwhile may
// be missing, and others with it.
func Children(pid int) (children []int) {
	tasks, _ := os.ReadDir(Path(pid, "task"))
	for _, task := range tasks {
		b, _ := Read(pid, "task/"+task.Name()+"/children")
		children = AppendPIDs(children, b)
	}
	return children
}

// AppendPIDs appends the pids in a text that lists them, as a file "children" or "cgroup.procs"
// does; 0, which stands for those that have none here, is left out.
func AppendPIDs(pids []int, text []byte) []int {
	for f := range bytes.FieldsSeq(text) {
		if pid, err := strconv.Atoi(string(f)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// SetOOMScore sets how soon the kernel kills a process when memory runs out: -1000
// (never) to 1000. Lowering it needs CAP_SYS_RESOURCE.
func SetOOMScore(pid, score int) error {
	fd, err := unix.Open(Path(pid, "oom_score_adj"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = eintr.Get(func() (int, error) { return unix.Write(fd, strconv.AppendInt(nil, int64(score), 10)) })
	return err
}

// BootTime returns CLOCK_BOOTTIME in ns: the time since the boot of the machine. This
// clock cannot be set, and continues while the machine sleeps; 0: unknown.
func BootTime() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// BootID is a random name of this boot; "": not known.
var BootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(b))
})

// KernelAtLeast reports whether the kernel is of this version or a later one.
func KernelAtLeast(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var a, b int
	fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b)
	return a > major || a == major && b >= minor
}

// Use is what processes have used until a moment.
type Use struct {
	CPU    time.Duration // of all processors together
	Memory int64         // bytes that are resident
}

// Sessions returns for each process of the machine, by pid, what all processes of its session
// use together.
func Sessions() map[int]Use {
	pids, err := PIDs()
	if err != nil {
		return nil
	}
	page := int64(os.Getpagesize())
	sums, session := make(map[int]Use, len(pids)), make(map[int]int, len(pids))
	for _, pid := range pids {
		b, err := Read(pid, "stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		s, ok := ParseStat(b)
		if !ok {
			continue
		}
		u := sums[s.Session]
		u.CPU += time.Duration(s.User+s.System) * Tick
		u.Memory += residentPages(b) * page
		sums[s.Session] = u
		session[pid] = s.Session
	}
	uses := make(map[int]Use, len(session))
	for pid, s := range session {
		uses[pid] = sums[s]
	}
	return uses
}

// residentPages reads field 24 of /proc/PID/stat; 0 if there is none.
func residentPages(stat []byte) int64 {
	field := 2
	for f := range bytes.FieldsSeq(stat[bytes.LastIndexByte(stat, ')')+1:]) {
		if field++; field == 24 {
			n, err := strconv.ParseInt(string(f), 10, 64)
			if err != nil || n < 0 {
				return 0
			}
			return n
		}
	}
	return 0
}

// OfTheMachine are files that tell of the whole machine in each namespace, to a program that should see only
// its sandbox. A lock of an open file description, as in locks, is of no namespace.
var OfTheMachine = []string{
	"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/locks", "/proc/timer_list", "/proc/latency_stats", "/proc/kallsyms",
}
