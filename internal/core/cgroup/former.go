//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Distrust is for a keeper that takes over. It does not know which groups of the slots
// below used were killed, or have limits. So each is created again before its next
// process.
func (t *Tree) Distrust(used uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for slot := range used {
		t.killed.add(slot)
	}
}

// slots is a set, of a bit for each slot.
type slots []uint64

func (s *slots) add(slot uint32) {
	for int(slot/64) >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[slot/64] |= 1 << (slot % 64)
}

func (s slots) has(slot uint32) bool { return int(slot/64) < len(s) && s[slot/64]&(1<<(slot%64)) != 0 }

func (s slots) remove(slot uint32) {
	if s.has(slot) {
		s[slot/64] &^= 1 << (slot % 64)
	}
}

// EndFormer kills what a former daemon left in the groups and removes them,
// without the slots in keep and the nests. It gives the kernel a second for each.
func (t *Tree) EndFormer(logf func(string, ...any), keep map[uint32]bool) {
	defer t.endOwn(logf, keep)
	if t.root == "" {
		return
	}
	entries, err := os.ReadDir(t.root)
	if err != nil {
		return
	}
	for _, e := range entries {
		if slot, ok := slotOfDir(e.Name()); ok && keep[slot] || strings.HasPrefix(e.Name(), nestPrefix) {
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
		removeDir(dir)
	}
}

// RemoveAll removes the whole tree at shutdown, as far as it can: the kernel may
// need a moment after the last exit.
func (t *Tree) RemoveAll() {
	for _, o := range t.owners() {
		for end := time.Now().Add(200 * time.Millisecond); !t.removeOwn(o) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	for _, c := range t.v1 {
		removeDir(c.root)
	}
	if t.root == "" {
		return
	}
	for range 20 {
		entries, _ := os.ReadDir(t.root)
		for _, e := range entries {
			removeDir(filepath.Join(t.root, e.Name()))
		}
		if err := unix.Rmdir(t.root); err == nil || err == unix.ENOENT {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// removeDir removes a directory that nobody is in, and those below it that a
// privileged descendant may have made.
func removeDir(dir string) error {
	err := unix.Rmdir(dir)
	if err != unix.EBUSY {
		return err
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeDir(filepath.Join(dir, e.Name()))
		}
	}
	return unix.Rmdir(dir)
}
