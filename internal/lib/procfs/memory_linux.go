package procfs

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// Memory is the machine's, in bytes; 0: not known.
func Memory() (total int64) {
	each("/proc/meminfo", func(f [][]byte) bool {
		if string(f[0]) == "MemTotal:" && len(f) > 1 {
			total = numbers(f[1:2])[0] << 10
		}
		return total == 0
	})
	return total
}

// MemoryLimit is how much memory this process may use, in bytes: that of the machine, or the
// limit of a control group that it is in, or Go's own (GOMEMLIMIT); 0: not known.
func MemoryLimit() int64 {
	least := Memory()
	groups, _ := os.ReadFile("/proc/self/cgroup")
	for _, limit := range append(limitsOf(string(groups), "/sys/fs/cgroup"), debug.SetMemoryLimit(-1)) {
		if limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// limitsOf are the limits of memory of the groups in a text as that of /proc/self/cgroup, and
// of all groups around them. Of a container without a namespace of its own for groups, the path
// leads nowhere, and the mount itself is its group.
func limitsOf(groups, mount string) (limits []int64) {
	for line := range strings.Lines(groups) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		root, name := mount, "memory.max"
		switch {
		case !ok:
			continue
		case controllers == "": // v2
		case strings.Contains(","+controllers+",", ",memory,"):
			root, name = filepath.Join(mount, "memory"), "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := filepath.Join("/", path); ; dir = filepath.Dir(dir) {
			if text, err := os.ReadFile(filepath.Join(root, dir, name)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
					limits = append(limits, n)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return limits
}
