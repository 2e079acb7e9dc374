package local

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// defaultTasks is how many processes and threads a sandbox may have that asks for no
// number, on a machine that has room for eight such sandboxes and more.
const defaultTasks = 4096

// defaultSize is what a sandbox may have that asks for nothing, so that a program that
// takes all it gets harms its own sandbox alone: an eighth of the processes that the
// machine can have, at most defaultTasks, and half of its memory. 0: the machine does not
// say what it has.
func defaultSize(pids, memory int64) driver.Size {
	var s driver.Size
	if pids > 0 {
		s.Tasks = min(defaultTasks, max(pids/8, container.MinTasks))
	}
	if memory > 0 {
		s.Memory = max(memory/2>>20<<20, container.MinMemory)
	}
	return s
}

// enforced is what a sandbox gets that asks for such a size. What is not asked for and
// cannot be enforced here is 0; Capabilities says why.
func (d *Driver) enforced(asked driver.Size) driver.Size {
	d.joining.Lock()
	defer d.joining.Unlock()
	for _, l := range []struct {
		layer    string
		to       *int64
		standard int64
	}{{container.LayerTasks, &asked.Tasks, d.defaults.Tasks}, {container.LayerMemory, &asked.Memory, d.defaults.Memory}} {
		if slices.Contains(d.can.Layers, l.layer) {
			*l.to = cmp.Or(*l.to, l.standard)
		}
	}
	return asked
}

// warnOfLimits says which limits no sandbox has here. joining is held.
func (d *Driver) warnOfLimits() {
	for _, m := range d.can.Missing {
		if m.Layer == container.LayerTasks || m.Layer == container.LayerMemory || m.Layer == container.LayerDisk && d.defaults.Disk != 0 {
			d.log.Warn("sandboxes have no limit of "+m.Layer+": one can use up what the machine has", slog.String("reason", m.Reason))
		}
	}
}
