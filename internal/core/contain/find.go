//go:build linux

package contain

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// Dir is the name of the directory of the files in the state directory.
const Dir = "cells"

// Find is for a keeper that takes over. It returns the containers of an earlier keeper that
// live, and those whose end must continue or whose creation must be undone: the caller
// calls their Kill and End. Find removes containers of another boot, and groups without a file.
func Find(stateDir string, groups *cgroup.Tree, logf func(string, ...any)) (live, over []*Container) {
	dir := filepath.Join(stateDir, Dir)
	entries, _ := os.ReadDir(dir)
	nests := map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			continue
		}
		if strings.HasPrefix(e.Name(), ".") { // was not given its name
			os.Remove(path)
			continue
		}
		r, err := readFile(path)
		if err == nil && string(r.spec.ID) != e.Name() {
			err = errFile
		}
		if err != nil {
			logf("%s: %v; it is removed", path, err)
			os.Remove(path)
			continue
		}
		c := &Container{Spec: r.spec, PID: r.pid, Started: r.started, Nest: groups.Nest(r.nest), dir: dir, nest: r.nest, pidfd: -1}
		if r.boot != bootName() {
			c.Nest.Remove(time.Now()) // there is none, unless the state directory was copied
			os.Remove(path)
			continue
		}
		nests[r.nest] = true
		if r.state == making && c.PID == 0 && c.Nest.Dir() == "" {
			c.PID = awaitPID(path)
		}
		if c.open() && r.state == made {
			c.Nest.EndHelpers(c.PID, time.Now().Add(helperWait))
			c.Active = active(&c.Spec, groups)
			c.networked = c.comm() == networked
			live = append(live, c)
			continue
		}
		over = append(over, c)
	}
	for _, name := range groups.Nests() {
		if !nests[name] {
			over = append(over, &Container{Nest: groups.Nest(name), dir: dir, nest: name, pidfd: -1})
		}
	}
	return live, over
}

// helperWait bounds how long a helper that was killed holds up its keeper.
const helperWait = time.Second

func readFile(path string) (r record, err error) {
	b, err := rundir.ReadFile(path, maxFile)
	if err != nil {
		return r, err
	}
	return decode(b)
}

// awaitPID waits a moment for the pid of a container that was being made: without a cgroup
// nobody else can tell whether its maker's child still runs.
func awaitPID(path string) int {
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if r, err := readFile(path); err != nil || r.pid != 0 {
			return r.pid
		}
	}
	return 0
}

// open opens pid 1, if it is the process that the file means. The start of a container that
// was not made is known to nobody: there it is a pid 1 in the container's own group.
func (c *Container) open() bool {
	if c.PID <= 1 {
		return false
	}
	fd, err := unix.PidfdOpen(c.PID, 0)
	if err != nil {
		return false
	}
	ok := isFirst(c.PID)
	switch {
	case c.Started != 0:
		ok = ok && started(c.PID) == c.Started
	case c.Nest.Dir() != "":
		ok = ok && slices.Contains(c.Nest.Members(), c.PID)
	default:
		exe, _ := os.Readlink(procfs.Path(c.PID, "exe"))
		ok = ok && strings.HasPrefix(exe, "/memfd:"+firstName)
	}
	if !ok {
		unix.Close(fd)
		return false
	}
	c.pidfd = fd
	return true
}

// modeOf a container with this spec.
func modeOf(s *container.Spec) container.Mode {
	if s.UIDBase == 0 {
		return container.ModeRootless
	}
	return container.ModeUser
}

// userLayer is the word for what a user namespace gives in a mode.
func userLayer(m container.Mode) string {
	if m == container.ModeRootless {
		return container.LayerRootless
	}
	return container.LayerUser
}

// active are the layers that a container has.
func active(s *container.Spec, groups *cgroup.Tree) []string {
	words := []string{container.LayerPID, container.LayerMount, userLayer(modeOf(s))}
	if s.Net != container.NetHost {
		words = append(words, container.LayerNetwork)
	}
	if groups.CanFreeze() {
		words = append(words, container.LayerFreeze)
	}
	for _, l := range []struct {
		asked bool
		word  string
	}{{s.Limits.Memory != 0, container.LayerMemory}, {s.Limits.Tasks != 0, container.LayerTasks}, {s.Limits.CPUs != 0, container.LayerCPU},
		{s.Disk != "", container.LayerDisk},
		{s.Harden.Seccomp, container.LayerSeccomp}, {s.Harden.Landlock && s.Net == container.NetHost, container.LayerLandlock}} {
		if l.asked {
			words = append(words, l.word)
		}
	}
	return words
}
