//go:build linux

package cgroup

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/process"
)

// nestLimits are the files of a nest's limits.
var nestLimits = []struct {
	controller, v2 string
	of             func(l *container.Limits) string // the value for v2; "": not asked for
	none           string
}{
	{"memory", "memory.max", func(l *container.Limits) string { return decimal(l.Memory) }, "max"},
	{"pids", "pids.max", func(l *container.Limits) string { return decimal(l.Tasks) }, "max"},
	{"cpu", "cpu.max", func(l *container.Limits) string {
		if l.CPUs == 0 {
			return ""
		}
		return fmt.Sprintf("%d %d", quota(l.CPUs), period)
	}, "max"},
}

// period of processor time, in microseconds.
const period = 100_000

// quota is how many microseconds of each period so many processors have. The kernel
// takes 1 ms and more.
func quota(cpus float64) int64 { return max(1000, int64(math.Round(cpus*period))) }

func decimal(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Controllers returns the reason for each of "memory", "pids" and "cpu" that nests cannot be
// limited by.
func (t *Tree) Controllers() map[string]error {
	t.lookAgain()
	out := map[string]error{}
	for _, l := range nestLimits {
		if !t.hasV2(l.controller) && t.v1Of(l.controller) == nil {
			out[l.controller] = fmt.Errorf("neither cgroup v2 nor v1 has the controller %q where tend may write", l.controller)
		}
	}
	return out
}

// Weighs reports whether each nest has the same weight of processor time.
func (t *Tree) Weighs() bool { return t.hasV2("cpu") || t.v1Of("cpu") != nil }

// controllers are those of v2 that were looked for.
type controllers struct {
	mu   sync.Mutex
	have map[string]bool // guarded by mu
}

// hasV2 reports whether the tree's root has the controller. The first time it switches
// it on.
func (t *Tree) hasV2(controller string) bool {
	if t.root == "" {
		return false
	}
	t.v2.mu.Lock()
	defer t.v2.mu.Unlock()
	has, known := t.v2.have[controller]
	if known {
		return has
	}
	look := func() bool {
		b, err := os.ReadFile(t.root + "/cgroup.subtree_control")
		return err == nil && slices.Contains(strings.Fields(string(b)), controller)
	}
	if has = look(); !has {
		for _, dir := range []string{filepath.Dir(t.root), t.root} {
			writeFile(dir+"/cgroup.subtree_control", "+"+controller)
		}
		has = look()
	}
	if t.v2.have == nil {
		t.v2.have = map[string]bool{}
	}
	t.v2.have[controller] = has
	return has
}

// lookAgain has hasV2 look again.
func (t *Tree) lookAgain() {
	t.v2.mu.Lock()
	defer t.v2.mu.Unlock()
	t.v2.have = nil
}

// Limit sets the limits; was are those that it has. A limit that cannot be had is
// process.ErrUnsupported, and then none is changed. Those of v1 controllers may wait for
// Join.
func (n *Nest) Limit(was, l *container.Limits) error {
	for _, f := range nestLimits {
		if f.of(l) != "" && !n.t.hasV2(f.controller) && n.t.v1Of(f.controller) == nil {
			return fmt.Errorf("limits.%s needs the cgroup controller %q, which is not available to tend here: %w",
				map[string]string{"memory": "memory", "pids": "tasks", "cpu": "cpus"}[f.controller], f.controller, process.ErrUnsupported)
		}
	}
	for _, f := range nestLimits {
		value := f.of(l)
		if value == f.of(was) {
			continue
		}
		if n.t.hasV2(f.controller) {
			if value == "" {
				value = f.none
			}
			if err := writeFile(n.Dir()+"/"+f.v2, value); err != nil {
				return fmt.Errorf("%s: %w", f.v2, err)
			}
			if f.controller == "memory" {
				// Else a program that takes too much would fill the machine's swap.
				swap := "max"
				if l.Memory != 0 {
					swap = "0"
				}
				if err := setSwap(n.Dir(), swap); err != nil {
					return fmt.Errorf("%s: %w", swapMax, err)
				}
			}
			continue
		}
		if !n.joined.Load() && n.v1Dir(f.controller) == "" {
			continue
		}
		if err := n.limitV1(f.controller, l); err != nil {
			return err
		}
	}
	return nil
}

// Join makes the groups of v1 controllers with the limits that the nest has. It comes before
// Tasks, once for each keeper: an empty group of the memory controller takes 288 KiB of the
// kernel's memory, and in many containers nothing ever runs. It is not called concurrently with
// itself or Limit.
//
// A nest joins the controller of processor time without a limit, too: there it has the same
// weight as each other nest. Without it each program has that, or each session (autogroups),
// of which a container may have hundreds.
func (n *Nest) Join(l *container.Limits) error {
	if n.joined.Load() {
		return nil
	}
	for _, f := range nestLimits {
		limited := f.of(l) != ""
		if !limited && f.controller != "cpu" || n.t.hasV2(f.controller) || n.t.v1Of(f.controller) == nil {
			continue
		}
		if err := n.limitV1(f.controller, l); err != nil && limited {
			return err
		}
	}
	n.joined.Store(true)
	return nil
}
