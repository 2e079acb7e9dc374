package doctor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ReadMachine asks the kernel. dir is the state directory, which need not be there yet. What
// cannot be read is taken to be well: the daemon says itself what it misses then.
func ReadMachine(dir string) *Machine {
	m := &Machine{UID: os.Geteuid(), Dir: dir, Clock: time.Now(), UserNamespaces: -1}
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		m.Files, m.FilesMost = files.Cur, files.Max
	}
	m.Caps = capsOf(text("/proc/self/status"))
	m.Autogroup = text("/proc/sys/kernel/sched_autogroup_enabled") == "1"
	if n, err := strconv.ParseInt(text("/proc/sys/user/max_user_namespaces"), 10, 64); err == nil {
		m.UserNamespaces = n
	}
	for name, allowed := range unrestricted {
		if is := text("/proc/sys/" + strings.ReplaceAll(name, ".", "/")); is != "" && is != allowed {
			m.Restricted = name
		}
	}
	m.readTaskLimit()
	var fs unix.Statfs_t
	if unix.Statfs(Existing(dir), &fs) == nil {
		unit := uint64(fs.Bsize)
		m.Disk = Disk{Magic: int64(uint32(fs.Type)), Free: fs.Bavail * unit, Total: fs.Blocks * unit, Inodes: fs.Files, InFree: fs.Ffree}
	}
	state, err := unix.Adjtimex(&unix.Timex{})
	m.Unsynced = err == nil && state == unix.TIME_ERROR
	return m
}

// Existing is the directory itself, or the nearest one above that is there.
func Existing(dir string) string {
	for {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func text(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// capsOf reads the effective capabilities in the text of /proc/PID/status.
func capsOf(status string) uint64 {
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return n
		}
	}
	return 0
}

// readTaskLimit finds the least of the limits of processes and threads.
func (m *Machine) readTaskLimit() {
	least := func(n int64, by string) {
		if n > 0 && (m.Tasks == 0 || n < m.Tasks) {
			m.Tasks, m.TasksBy = n, by
		}
	}
	for _, name := range []string{"pid_max", "threads-max"} {
		n, _ := strconv.ParseInt(text("/proc/sys/kernel/"+name), 10, 64)
		least(n, "kernel."+name)
	}
	var own unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &own) == nil && own.Max < 1<<40 && m.UID != 0 {
		least(int64(own.Max), "RLIMIT_NPROC")
	}
	for line := range strings.Lines(text("/proc/self/cgroup")) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[1] != "" && f[1] != "pids" {
			continue
		}
		top := "/sys/fs/cgroup"
		if f[1] != "" {
			top += "/pids"
		}
		for dir := filepath.Join(top, f[2]); len(dir) >= len(top); dir = filepath.Dir(dir) {
			path := filepath.Join(dir, "pids.max")
			n, _ := strconv.ParseInt(text(path), 10, 64) // "max": no limit
			least(n, path)
		}
	}
}
