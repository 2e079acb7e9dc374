//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/disk"
	"github.com/tend-run/tend/process"
)

// probeBase is the first id of the container that Can makes.
const probeBase = 100_000

// Can reports what containers can have here. The first call creates a container and ends it. Do not
// call other methods with ProbeID meanwhile.
func (m *Maker) Can() (can container.Can) {
	m.probing.Lock()
	defer m.probing.Unlock()
	if err := m.find(); err != nil {
		return none(explain(err))
	}
	if !m.ok {
		if m.noBase = m.probe(container.BaseHost); m.noBase != nil {
			if err := m.probe(container.BaseNone); err != nil { // which takes less
				return none(err)
			}
		}
		m.ok = true
	}
	can = container.Can{Mode: container.ModeUser, Way: m.way}
	if m.rootless {
		can.Mode = container.ModeRootless
		who := "an ordinary user (rootless)"
		if os.Geteuid() == 0 {
			who = "root of a user namespace (rootless)"
		}
		can.Add(container.LayerUser, errors.New("tend runs as "+who+", so all users of a sandbox are one, "+
			"and that is tend's own user outside; run tend as root of the machine for users that are nobody outside"))
	}
	can.Layers = []string{container.LayerPID, container.LayerMount, userLayer(can.Mode), container.LayerNetwork}
	can.Add(container.LayerBase, m.noBase)
	if !m.rootless {
		var ids error
		switch {
		case m.paths():
			ids = errors.New(container.MayNotMount + "all sandboxes have the same ids outside")
		case !m.parts.ownIDs():
			ids = errors.New("all sandboxes have the same ids outside, as this kernel shows no others of files in memory (Linux 6.3)")
		}
		can.Add(container.LayerIDs, ids)
	}
	var freeze error
	if !m.groups.CanFreeze() {
		freeze = errors.New("a cgroup v2 tree where tend may write is needed, Linux 5.2")
	}
	can.Add(container.LayerFreeze, freeze)
	reasons := m.groups.Controllers()
	can.Add(container.LayerMemory, reasons["memory"])
	can.Add(container.LayerTasks, reasons["pids"])
	can.Add(container.LayerCPU, reasons["cpu"])
	if m.paths() {
		can.Add(container.LayerDisk, m.noDisk())
	} else {
		can.Add(container.LayerDisk, disk.Able())
	}
	if m.byPath {
		can.Add(container.LayerCopies, errors.New(container.NoCopies))
	}
	return can
}

// noDisk is why a container of a keeper that attaches by paths has no disk of its own.
func (m *Maker) noDisk() error {
	if m.byPath {
		return errors.New(container.MayNotMount + "no disk of its own, which is a filesystem in a file")
	}
	return errors.New("a disk of its own is a filesystem in a file, which only root may mount; run tend as root")
}

// none is the answer where no container can be made.
func none(err error) container.Can {
	var name unix.Utsname
	var major, minor int
	_ = unix.Uname(&name) // never fails
	release := unix.ByteSliceToString(name.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && tooOld(major, minor) {
		release = "sandboxes need Linux 5.19, or 5.11 where tend is not root, and this is " + release + ": "
	} else {
		release = ""
	}
	return container.Can{Missing: []container.Missing{{Reason: release + err.Error()}}}
}

// tooOld is true for kernels in which nothing makes a container: what such a kernel says is often no help.
func tooOld(major, minor int) bool { return major < 5 || major == 5 && minor < 11 }

// probe makes a container and ends it. m.probing is held.
func (m *Maker) probe(base container.Base) error {
	dir := filepath.Join(m.parts.dir, "probe")
	defer removeAll(dir)
	defer m.parts.forgetTrials()
	for _, sub := range []string{"up", "wk", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	// Else all goes well until a program replaces a directory.
	if err := unix.Setxattr(filepath.Join(dir, "up"), userOpaque, []byte("n"), 0); err == unix.EOPNOTSUPP {
		return fmt.Errorf("the filesystem of the state directory has no attributes of users, which overlays need (one in memory has them from Linux 6.6 on); use tend serve --state-dir DIR, on ext4, xfs or btrfs: %w", process.ErrUnsupported)
	}
	s := container.Spec{ID: ProbeID, Dir: dir, UIDBase: probeBase, Base: base, Volatile: true}
	if m.rootless {
		s.UIDBase = 0
	}
	if base == container.BaseNone {
		s.Layers = []string{filepath.Join(dir, "root")}
	}
	c, err := m.Make(&s)
	if err != nil {
		return err
	}
	m.way = m.used(m.parts.shows())
	err = c.Furnish()
	c.kill()
	if eerr := c.End(time.Now().Add(undoWait)); err == nil {
		err = eerr
	}
	return err
}
