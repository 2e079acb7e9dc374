//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// A controller is one of v1 in a hierarchy of its own.
type controller struct {
	name string // "memory"
	root string // the directory of this tree in its hierarchy, which need not exist
}

// findV1 finds the v1 controllers that limits need, by the texts of mountinfo and of
// /proc/self/cgroup. name is that of the tree's directory.
func findV1(info, self, name string) (found []controller) {
	for _, l := range nestLimits {
		mount, root, ok := v1MountOf(info, l.controller)
		if !ok {
			continue
		}
		rel, err := filepath.Rel(root, v1Group(self, l.controller))
		if err != nil || strings.HasPrefix(rel, "..") {
			rel = "."
		}
		for _, base := range []string{filepath.Join(mount, rel), mount} {
			if unix.Access(base, unix.W_OK) == nil {
				found = append(found, controller{l.controller, filepath.Join(base, name)})
				break
			}
		}
	}
	return found
}

// v1MountOf finds the hierarchy of a controller in the text of mountinfo.
func v1MountOf(info, name string) (mount, root string, ok bool) {
	for line := range strings.Lines(info) {
		before, after, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if found && len(f) >= 5 && len(g) >= 3 && g[0] == "cgroup" && hasWord(g[2], name) {
			return procfs.Unescape(f[4]), procfs.Unescape(f[3]), true
		}
	}
	return "", "", false
}

// v1Group is our group of a controller in the text of /proc/self/cgroup.
func v1Group(self, name string) string {
	for line := range strings.Lines(self) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 && hasWord(f[1], name) {
			return f[2]
		}
	}
	return "/"
}

func hasWord(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }

func (t *Tree) v1Of(name string) *controller {
	for i := range t.v1 {
		if t.v1[i].name == name {
			return &t.v1[i]
		}
	}
	return nil
}

// v1Dir is the nest's directory in the hierarchy of a controller; "" if it has none.
func (n *Nest) v1Dir(name string) string {
	c := n.t.v1Of(name)
	if c == nil {
		return ""
	}
	dir := c.root + "/" + n.name
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// v1Dirs are all that the nest has.
func (n *Nest) v1Dirs() (dirs []string) {
	if known := n.v1.Load(); known != nil {
		return *known
	}
	defer func() { n.v1.Store(&dirs) }()
	for _, c := range n.t.v1 {
		if dir := n.v1Dir(c.name); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// limitV1 sets the limits of one controller; 0 lifts them. A directory that is there
// stays: processes are in it.
func (n *Nest) limitV1(name string, l *container.Limits) error {
	c := n.t.v1Of(name)
	dir := c.root + "/" + n.name
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cgroup controller %q: %w: %w", name, err, process.ErrUnsupported)
	}
	n.v1.Store(nil)
	switch name {
	case "memory":
		return setV1(dir, name, l.Memory)
	case "pids":
		return setV1(dir, name, l.Tasks)
	}
	if l.CPUs == 0 {
		return setFile(dir, quotaV1, "-1")
	}
	if err := setFile(dir, "/cpu.cfs_period_us", strconv.Itoa(period)); err != nil {
		return err
	}
	shortenTime(dir, quota(l.CPUs))
	return setFile(dir, quotaV1, strconv.FormatInt(quota(l.CPUs), 10))
}

// Tasks opens the files by which a process joins the nest's v1 groups: it writes "0". The
// caller closes them.
func (n *Nest) Tasks() (fds []int, err error) { return Own(n.v1Dirs()).Tasks() }
