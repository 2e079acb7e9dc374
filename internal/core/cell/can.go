//go:build linux && (amd64 || arm64)

package cell

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/disk"
	"github.com/tend-run/tend/process"
)

// probeBase is the first id of the box that Can makes.
const probeBase = 100_000

// Can reports what boxes can have here. The first call creates a box and ends it. Do not
// call other methods with ProbeID meanwhile.
func (m *Maker) Can() (can box.Can) {
	m.probing.Lock()
	defer m.probing.Unlock()
	if !m.ok {
		if m.noBase = m.probe(box.BaseHost); m.noBase != nil {
			if err := m.probe(box.BaseNone); err != nil { // which takes less
				return box.Can{Missing: []box.Missing{{Reason: err.Error()}}}
			}
		}
		m.ok = true
	}
	can = box.Can{Mode: box.ModeUser}
	if m.rootless {
		can.Mode = box.ModeRootless
		can.Missing = append(can.Missing, box.Missing{Layer: box.LayerUser,
			Reason: "tend runs as an ordinary user (rootless), so all users of a sandbox are one, and that is tend's own user outside; run tend as root for users that are nobody outside"})
	}
	can.Layers = []string{box.LayerPID, box.LayerMount, userLayer(can.Mode), box.LayerNetwork}
	if m.noBase == nil {
		can.Layers = append(can.Layers, box.LayerBase)
	} else {
		can.Missing = append(can.Missing, box.Missing{Layer: box.LayerBase, Reason: m.noBase.Error()})
	}
	if m.groups.CanFreeze() {
		can.Layers = append(can.Layers, box.LayerFreeze)
	} else {
		can.Missing = append(can.Missing, box.Missing{Layer: box.LayerFreeze,
			Reason: "a cgroup v2 tree where tend may write is needed, Linux 5.2"})
	}
	reasons := m.groups.Controllers()
	for _, l := range [][2]string{{"memory", box.LayerMemory}, {"pids", box.LayerTasks}, {"cpu", box.LayerCPU}} {
		if why := reasons[l[0]]; why != "" {
			can.Missing = append(can.Missing, box.Missing{Layer: l[1], Reason: why})
		} else {
			can.Layers = append(can.Layers, l[1])
		}
	}
	if m.rootless {
		can.Missing = append(can.Missing, box.Missing{Layer: box.LayerDisk, Reason: noRootlessDisk})
	} else if err := disk.Able(); err != nil {
		can.Missing = append(can.Missing, box.Missing{Layer: box.LayerDisk, Reason: err.Error()})
	} else {
		can.Layers = append(can.Layers, box.LayerDisk)
	}
	return can
}

// probe makes a box and ends it. m.probing is held.
func (m *Maker) probe(base box.Base) error {
	dir := filepath.Join(m.parts.dir, "probe")
	defer removeAll(dir)
	for _, sub := range []string{"up", "wk", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	// Else all goes well until a program replaces a directory.
	if err := unix.Setxattr(filepath.Join(dir, "up"), userOpaque, []byte("n"), 0); err == unix.EOPNOTSUPP {
		return fmt.Errorf("the filesystem of the state directory has no attributes of users, which overlays need (one in memory has them from Linux 6.6 on); use tend serve --state-dir DIR, on ext4, xfs or btrfs: %w", process.ErrUnsupported)
	}
	s := box.Spec{ID: ProbeID, Dir: dir, UIDBase: probeBase, Base: base, Volatile: true}
	if m.rootless {
		s.UIDBase = 0
	}
	if base == box.BaseNone {
		s.Layers = []string{filepath.Join(dir, "root")}
	}
	c, err := m.Make(&s)
	if err != nil {
		return err
	}
	err = c.Furnish()
	c.kill()
	if eerr := c.End(time.Now().Add(undoWait)); err == nil {
		err = eerr
	}
	return err
}
