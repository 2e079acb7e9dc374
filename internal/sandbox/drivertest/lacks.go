package drivertest

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Lacks reports whether a driver has not a layer, so that a step has nothing to look at. It
// is a failure of the driver if the machine has what the layer takes: a step is left out
// where it cannot be done, and nowhere else.
func Lacks(t *testing.T, d driver.Driver, layer string) bool {
	t.Helper()
	can := d.Capabilities()
	if slices.Contains(can.Layers, layer) {
		return false
	}
	if len(can.Layers) > 0 { // it isolates
		if why := machineHas(layer); why != "" {
			t.Errorf("the driver has no layer %q, which this machine can give: %s. It says %q", layer, why, can.Missing)
		} else {
			t.Logf("left out: there is no layer %q here", layer)
		}
	}
	return true
}

// machineHas says by what this machine can give a layer; "": it cannot, or nobody knows. An
// ordinary user has what namespaces give; the groups of others are closed.
func machineHas(layer string) string {
	if os.Geteuid() != 0 && slices.Contains([]string{"user", "freeze", "memory", "cpu", "tasks", "disk"}, layer) {
		return ""
	}
	has := func(path string) string {
		if _, err := os.Stat(path); err != nil {
			return ""
		}
		return path
	}
	switch layer {
	case "pid", "user", "network":
		return has(map[string]string{"pid": "/proc/self/ns/pid", "user": "/proc/self/ns/user", "network": "/proc/self/ns/net"}[layer])
	case "mount":
		return has("/proc/self/ns/mnt")
	case "seccomp":
		return has("/proc/sys/kernel/seccomp/actions_avail")
	case "disk":
		if b, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(b), "\text4\n") {
			return ""
		}
		return has("/dev/loop-control")
	case "freeze":
		return mounted("cgroup2", "")
	case "memory", "cpu":
		return mounted("cgroup", layer)
	case "tasks":
		return mounted("cgroup", "pids")
	}
	return ""
}

// mounted finds a mount of this kind and with this option that can be written to.
func mounted(kind, option string) string {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := strings.Fields(lines.Text()) // what, where, kind, options
		if len(m) < 4 || m[2] != kind {
			continue
		}
		options := strings.Split(m[3], ",")
		if slices.Contains(options, "rw") && (option == "" || slices.Contains(options, option)) {
			return "a mount of " + kind + " at " + m[1]
		}
	}
	return ""
}
