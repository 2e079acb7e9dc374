//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tend-run/tend/process"
)

// limits are the files of a group's limits, with the value that lifts each.
var limits = []struct {
	file, controller, none string
	of                     func(*process.Limits) int64 // 0: not limited
}{
	{"memory.max", "memory", "max", func(l *process.Limits) int64 { return l.MemoryMax }},
	{"pids.max", "pids", "max", func(l *process.Limits) int64 { return l.PidsMax }},
	{"cpu.weight", "cpu", "100", func(l *process.Limits) int64 { return l.CPUWeight }},
}

// Limit sets the limits of the slot's group. A limit that cannot be set is
// process.ErrUnsupported; limits that l does not name stay as they are. Lift
// comes before it.
func (t *Tree) Limit(slot uint32, l *process.Limits) error {
	for _, f := range limits {
		value := f.of(l)
		if value <= 0 {
			continue
		}
		if t.root == "" {
			return fmt.Errorf("limits of memory, pids and cpu need a cgroup v2 tree that tend may write; here there is none: %w", process.ErrUnsupported)
		}
		t.mu.Lock()
		t.limitedOf(slot).add(slot)
		t.mu.Unlock()
		path := t.dir(slot) + "/" + f.file
		if _, err := os.Stat(path); err != nil {
			// Not switched on for our subtree yet.
			for _, dir := range []string{filepath.Dir(t.root), t.root, filepath.Dir(t.dir(slot))} {
				writeFile(dir+"/cgroup.subtree_control", "+"+f.controller)
			}
		}
		if err := writeFile(path, strconv.FormatInt(value, 10)); err != nil {
			return fmt.Errorf("limit %s needs the cgroup v2 controller %q, which is not available to tend here (%v): %w", f.file, f.controller, err, process.ErrUnsupported)
		}
	}
	return nil
}

// Lift lifts the limits that a former process of the slot had.
func (t *Tree) Lift(slot uint32) {
	t.mu.Lock()
	limited := t.limitedOf(slot)
	had := limited.has(slot)
	limited.remove(slot)
	t.mu.Unlock()
	if !had {
		return
	}
	for _, f := range limits {
		writeFile(t.dir(slot)+"/"+f.file, f.none)
	}
}
