//go:build linux

package cgroup

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// Find looks in mountinfo for a cgroup2 mount that shows our own group, and makes
// a directory of this name in it. The name begins with Prefix.
func Find(name string) *Tree {
	none := func(format string, a ...any) *Tree { return &Tree{why: fmt.Sprintf(format, a...)} }
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return none("%v", err)
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return none("%v", err)
	}
	t := findV2(string(info), string(self), name)
	t.v1 = findV1(string(info), string(self), name)
	t.findOwn()
	return t
}

func findV2(info, self, name string) *Tree {
	none := func(format string, a ...any) *Tree { return &Tree{why: fmt.Sprintf(format, a...)} }
	if why := cloneRefused(); why != "" {
		return none("%s", why)
	}
	mount, root, ok := mountOf(info)
	if !ok {
		return none("no cgroup2 filesystem is mounted")
	}
	own := ownGroup(self)
	rel, err := filepath.Rel(root, own)
	if err != nil || strings.HasPrefix(rel, "..") {
		rel = "."
	}
	// A keeper that another keeper's anchor started is in that daemon's own
	// group already; its processes' groups go beside it, not below.
	var firstErr error
	for _, base := range append(besideOwn(filepath.Join(mount, rel), name), filepath.Join(mount, rel), mount) {
		dir := filepath.Join(base, name)
		probe := filepath.Join(dir, "probe")
		err := mkdir(dir)
		if err == nil {
			err = mkdir(probe)
		}
		if err != nil {
			firstErr = cmp.Or(firstErr, err)
			continue
		}
		g := &Tree{root: dir, rootFD: unix.AT_FDCWD}
		if fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			g.rootFD = fd
		}
		_, err = os.Stat(filepath.Join(probe, "cgroup.kill"))
		g.canKill = err == nil
		return g
	}
	return none("cgroup2 at %s cannot be written: %v", mount, firstErr)
}

// mkdir makes a directory, unless it is there.
func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); !os.IsExist(err) {
		return err
	}
	return nil
}

// besideOwn is the group around own if it was delegated to us, as systemd does where a unit
// has DelegateSubgroup=. The roles are in a group of their own there, so the kernel has
// controllers below the one around it: a group with processes in it has none. A tree that a
// keeper before has made below own is used on.
func besideOwn(own, name string) []string {
	around := filepath.Dir(own)
	if _, err := os.Stat(filepath.Join(own, name)); err == nil {
		return nil
	}
	mark := make([]byte, 2)
	for _, attr := range []string{"trusted.delegate", "user.delegate"} {
		if n, err := unix.Getxattr(around, attr, mark); err == nil && string(mark[:n]) == "1" {
			return []string{around}
		}
	}
	return nil
}

// cloneRefused says why no process can be forked into a cgroup here; "" if it
// can. Sandboxes filter clone3 because they cannot see its flags.
func cloneRefused() string {
	// Too small to be valid: a kernel that knows the call says so.
	_, _, err := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	switch {
	case err != unix.EINVAL:
		return fmt.Sprintf("clone3 is refused (%v)", err)
	case !procfs.KernelAtLeast(5, 7):
		return "Linux 5.7 is needed to fork into a cgroup"
	}
	return ""
}

// mountOf finds the cgroup2 mount in the text of mountinfo (proc(5)) and
// the group that is its root.
func mountOf(info string) (mount, root string, ok bool) {
	for line := range strings.Lines(info) {
		before, after, found := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if found && len(f) >= 5 && strings.HasPrefix(after, "cgroup2 ") {
			return procfs.Unescape(f[4]), procfs.Unescape(f[3]), true
		}
	}
	return "", "", false
}

// ownGroup returns the v2 group in the text of /proc/self/cgroup.
func ownGroup(self string) string { return cmp.Or(v2Path(self), "/") }
