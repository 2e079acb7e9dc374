//go:build linux

package rundir

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// A RolePID is a line of the roles file: which process plays a role. Ticks is its start
// time from the kernel, which distinguishes it from a later process with the same pid.
type RolePID struct {
	Name  string
	PID   int
	Ticks uint64
}

// FormatRoles is the text of the roles file: a line "name pid ticks" for each.
func FormatRoles(roles ...RolePID) []byte {
	var b bytes.Buffer
	for _, r := range roles {
		fmt.Fprintf(&b, "%s %d %d\n", r.Name, r.PID, r.Ticks)
	}
	return b.Bytes()
}

// ParseRole finds a role in the text of the roles file; zeros if it says nothing of it.
func ParseRole(b []byte, name string) (pid int, ticks uint64) {
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == name {
			pid, _ = strconv.Atoi(f[1])
			ticks, _ = strconv.ParseUint(f[2], 10, 64)
		}
	}
	return pid, ticks
}

// StartTicks is the kernel's start time of a process; 0 if it is gone.
func StartTicks(pid int) uint64 {
	s, ok := procfs.ReadStat(pid)
	if !ok || s.Dead() {
		return 0
	}
	return uint64(s.Start)
}

// Started is the process of a role that the anchor has noted, which may not have come to its
// lock yet (see [Dir.Holder]); 0: none that lives.
func (d *Dir) Started(role string) int {
	text, err := d.ReadFile(Roles)
	if err != nil {
		return 0
	}
	pid, ticks := ParseRole(text, role)
	if pid <= 0 || ticks == 0 || StartTicks(pid) != ticks {
		return 0
	}
	return pid
}
