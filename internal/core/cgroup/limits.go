//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

// A limit is one of a process: its controller, and for v2 its file with the value that
// lifts it.
type limit struct {
	word, controller, file, none string
	of                           func(*process.Limits) int64 // 0: not limited
}

var limits = []limit{
	{"memory_max", "memory", "memory.max", "max", func(l *process.Limits) int64 { return l.MemoryMax }},
	{"pids_max", "pids", "pids.max", "max", func(l *process.Limits) int64 { return l.PidsMax }},
	{"cpu_weight", "cpu", "cpu.weight", "100", func(l *process.Limits) int64 { return l.CPUWeight }},
	{"cpus", "cpu", cpuMax, "max", func(l *process.Limits) int64 {
		if l.CPUs <= 0 {
			return 0
		}
		return quota(l.CPUs)
	}},
}

const cpuMax = "cpu.max"

// swapMax has the limit of memory be one of memory and swap together, as it is with v1.
const swapMax = "memory.swap.max"

// Limit sets the limits of a process that starts in the slot, in this generation of it:
// each in the version of cgroups that has its controller. grouped: the slot has a group of
// v2, whose limits that l does not name stay as they are; Lift comes before. The process
// must join own, which Unlimit removes, before any of its program runs. A limit that cannot
// be set is process.ErrUnsupported.
func (t *Tree) Limit(slot, gen uint32, grouped bool, l *process.Limits) (own Own, err error) {
	o := owner{slot, gen}
	for i := range limits {
		f := &limits[i]
		value := f.of(l)
		if value <= 0 {
			continue
		}
		switch c := t.v1Of(f.controller); {
		case grouped && t.hasV2(f.controller), grouped && c == nil:
			err = t.limitV2(slot, f, value)
		case c != nil:
			err = t.limitOwn(c, o, f, value)
		default:
			return nil, t.unsupported("limits."+f.word, f.controller)
		}
		if err == unix.ENOENT || err == unix.EROFS || err == unix.EACCES || err == unix.EPERM {
			return nil, fmt.Errorf("%w (%w)", t.unsupported("limits."+f.word, f.controller), err)
		}
		if err != nil {
			return nil, fmt.Errorf("limits.%s: %w", f.word, err)
		}
	}
	return t.ownOf(o), nil
}

// limitV2 writes a limit of the slot's group.
func (t *Tree) limitV2(slot uint32, f *limit, value int64) error {
	t.mu.Lock()
	t.marksOf(slot).limited.add(slot)
	t.mu.Unlock()
	dir := t.dir(slot)
	if _, err := os.Stat(dir + "/" + f.file); err != nil {
		// Not switched on for our subtree yet.
		for _, around := range []string{filepath.Dir(t.root), t.root, filepath.Dir(dir)} {
			writeFile(around+"/cgroup.subtree_control", "+"+f.controller)
		}
	}
	text := strconv.FormatInt(value, 10)
	if f.file == cpuMax {
		text = fmt.Sprintf("%d %d", value, period)
	}
	if err := writeFile(dir+"/"+f.file, text); err != nil {
		return err
	}
	if f.controller != "memory" {
		return nil
	}
	return setSwap(dir, "0")
}

// setSwap sets how much of the swap those in a group may take. A kernel that keeps no account of
// swap has no such file.
func setSwap(dir, value string) error {
	if err := writeFile(dir+"/"+swapMax, value); err != unix.ENOENT {
		return err
	}
	return nil
}

// Lift lifts the limits that a former process of the slot had in its group of v2.
func (t *Tree) Lift(slot uint32) {
	t.mu.Lock()
	limited := &t.marksOf(slot).limited
	had := limited.has(slot)
	limited.remove(slot)
	t.mu.Unlock()
	if !had {
		return
	}
	for _, f := range limits {
		writeFile(t.dir(slot)+"/"+f.file, f.none)
	}
	writeFile(t.dir(slot)+"/"+swapMax, "max")
}
