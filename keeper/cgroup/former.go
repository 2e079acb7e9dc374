//go:build linux

package cgroup

import (
	"maps"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Marks are the slots whose groups need care before the next process uses them.
type Marks struct {
	Killed  map[uint32]bool // the directory must be made anew
	Limited map[uint32]bool // limits must be lifted
}

// Marks are for the keeper that goes on in this one's place.
func (t *Tree) Marks() Marks {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Marks{maps.Clone(t.killed), maps.Clone(t.limited)}
}

// SetMarks takes over the marks of the keeper before.
func (t *Tree) SetMarks(m Marks) {
	if t.root == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.killed, t.limited = maps.Clone(m.Killed), maps.Clone(m.Limited)
}

// RemoveEmpty removes the directories of a former keeper that nobody is in. It is
// not known which of them were killed. A directory that somebody is still in may
// have been killed a moment ago, and is not used again either.
func (t *Tree) RemoveEmpty() {
	entries, _ := os.ReadDir(t.root)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		if !e.IsDir() || unix.Rmdir(filepath.Join(t.root, e.Name())) == nil {
			continue
		}
		if slot, ok := slotOfDir(e.Name()); ok {
			t.killed[slot] = true
		}
	}
}

// EndFormer kills what a former daemon left in the groups and removes them,
// without the slots in keep. It gives the kernel a second for each.
func (t *Tree) EndFormer(logf func(string, ...any), keep map[uint32]bool) {
	if t.root == "" {
		return
	}
	entries, err := os.ReadDir(t.root)
	if err != nil {
		return
	}
	for _, e := range entries {
		if slot, ok := slotOfDir(e.Name()); ok && keep[slot] {
			continue
		}
		dir := filepath.Join(t.root, e.Name())
		fd, err := unix.Open(dir+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if Populated(fd) {
			logf("ending what a former daemon left behind in %s", dir)
			if err := writeFile(dir+"/cgroup.kill", "1"); err != nil {
				logf("%s: %v", dir, err)
			}
			waitEmpty(fd, time.Now().Add(time.Second))
		}
		unix.Close(fd)
		unix.Rmdir(dir)
	}
}

// RemoveAll removes the whole tree at shutdown, as far as it can: the kernel may
// need a moment after the last exit.
func (t *Tree) RemoveAll() {
	if t.root == "" {
		return
	}
	for range 20 {
		t.RemoveEmpty()
		if err := unix.Rmdir(t.root); err == nil || err == unix.ENOENT {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
