//go:build linux && (amd64 || arm64)

package contain

import (
	"cmp"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hosts has the name of a container resolve inside, unless it has a file of its own for it.
func hosts(up string, layers []string, name string, rootless bool) error {
	name = cmp.Or(name, defaultName)
	const p = "/etc/hosts"
	if f, err := inspect(up, path.Dir(p)); err != nil || f.over || isThere(up+p) {
		return err
	}
	text := hostsHead + hostLine(defaultName)
	a := attr{mode: 0o755}
	for _, l := range layers {
		f, err := inspect(l, path.Dir(p))
		if err != nil || f.over {
			return err
		}
		if len(f.dirs) == 1 {
			a = attr{f.dirs[0].Mode & 0o7777, f.dirs[0].Uid, f.dirs[0].Gid}
		}
		if isThere(l + p) {
			fd, err := unix.Open(l+p, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil
			}
			f := os.NewFile(uintptr(fd), "hosts")
			defer f.Close()
			b := make([]byte, 64<<10)
			n, err := f.Read(b)
			if err != nil || n == len(b) {
				return nil // it is no text of a common size
			}
			text = string(b[:n])
			break
		}
		if f.opaque {
			return nil
		}
	}
	if slices.Contains(strings.Fields(text), name) {
		return nil
	}
	if err := makeDirs(up, &piece{path: path.Dir(p), above: []attr{a}}, boolInt(isThere(up+path.Dir(p))), rootless); err != nil {
		return err
	}
	return os.WriteFile(up+p, []byte(strings.TrimSuffix(text, hostLine(defaultName))+hostLine(name)), 0o644)
}

func isThere(p string) bool {
	var st unix.Stat_t
	return unix.Lstat(p, &st) == nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
