//go:build linux

package cgroup

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/core/container"
)

// Usage of all that ran in the nest.
func (n *Nest) Usage() (u container.Usage) {
	if dir := n.Dir(); dir != "" {
		u.CPU = time.Duration(field(dir+"/cpu.stat", "usage_usec")) * time.Microsecond
		u.Memory, u.MemoryPeak = number(dir+"/memory.current"), number(dir+"/memory.peak")
		u.Tasks = number(dir + "/pids.current")
	}
	if dir := n.v1Dir("memory"); dir != "" && u.Memory == 0 {
		u.Memory, u.MemoryPeak = number(dir+"/memory.usage_in_bytes"), number(dir+"/memory.max_usage_in_bytes")
	}
	if dir := n.v1Dir("pids"); dir != "" && u.Tasks == 0 {
		u.Tasks = number(dir + "/pids.current")
	}
	if u.Memory == 0 || u.Tasks == 0 {
		memory, tasks := n.count()
		u.Memory, u.Tasks = cmp.Or(u.Memory, memory), cmp.Or(u.Tasks, tasks)
	}
	u.MemoryPeak = max(u.MemoryPeak, u.Memory)
	u.OOMKills = n.oomKills() + n.ownOOMs.Load()
	if dir := n.v1Dir("memory"); dir != "" { // v1 counts a kill in the process's own group alone
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if _, ok := ownerOf(e.Name()); ok {
				u.OOMKills += field(dir+"/"+e.Name()+"/memory.oom_control", "oom_kill")
			}
		}
	}
	return u
}

// count adds up what the processes themselves say, where no controller does: resident
// memory that is theirs alone, in bytes, and threads.
func (n *Nest) count() (memory, tasks int64) {
	page := int64(os.Getpagesize())
	for _, pid := range n.Members() {
		dir := "/proc/" + strconv.Itoa(pid)
		if b, err := os.ReadFile(dir + "/statm"); err == nil {
			var size, resident, shared int64
			if k, _ := fmt.Sscan(string(b), &size, &resident, &shared); k == 3 {
				memory += (resident - shared) * page
			}
		}
		threads, _ := os.ReadDir(dir + "/task")
		tasks += int64(len(threads))
	}
	return memory, tasks
}

func (n *Nest) oomKills() int64 {
	if dir := n.Dir(); dir != "" {
		if v := field(dir+"/memory.events", "oom_kill"); v > 0 {
			return v
		}
	}
	if dir := n.v1Dir("memory"); dir != "" {
		return field(dir+"/memory.oom_control", "oom_kill")
	}
	return 0
}

// struck reports whether somebody was killed for want of memory since the last call.
func (n *Nest) struck() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.oomKills()
	if now <= n.ooms {
		return false
	}
	n.ooms = now
	return true
}

// number reads a file that holds one; 0 if there is none.
func number(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	v, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return v
}

// field reads the number behind a word in a file of such lines; 0 if there is none.
func field(path, word string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, word+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}
