//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/disk"
	"github.com/tend-run/tend/process"
)

// ownDir is what a container writes to.
type ownDir struct {
	path string // of "up" and "wk"
	name string
	disk *disk.Mount
}

// openOwn opens it.
func (m *Maker) openOwn(s *container.Spec) (*ownDir, error) {
	d := &ownDir{path: s.Dir, name: s.Dir}
	if s.Disk == "" {
		return d, m.takesUpper(s.Dir)
	}
	if m.paths() {
		return nil, fmt.Errorf("%w: %w", m.noDisk(), process.ErrUnsupported)
	}
	var err error
	if d.disk, err = disk.Open(s.Disk); err != nil {
		return nil, err
	}
	d.path, d.name = d.disk.Path(), s.Disk
	for _, name := range []string{"/up", "/wk"} {
		err := os.Mkdir(d.path+name, 0o755)
		if err == nil {
			err = os.Chmod(d.path+name, 0o755) // whatever the umask is
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

// takesUpper refuses a directory to which no overlay can write.
func (m *Maker) takesUpper(dir string) error {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("the state directory %s is on an overlay, as in a container: give it a volume (docker run -v tend:/var/lib/tend; "+
			"Kubernetes: an emptyDir), or tend serve --state-dir DIR: %w", m.parts.state, process.ErrUnsupported)
	}
	return nil
}

func (d *ownDir) close() {
	if d.disk != nil {
		d.disk.Close()
	}
}

// mount returns a detached mount of it, with the ids of a user namespace.
func (d *ownDir) mount(ns int) (int, error) {
	if d.disk != nil {
		return mapped(d.disk.Take(), d.name, ns, unix.MOUNT_ATTR_NODEV)
	}
	return tree(d.path, ns, unix.MOUNT_ATTR_NODEV)
}

// diskTree is tree of the filesystem in a file.
func diskTree(path string, ns int, attr uint64) (int, error) {
	m, err := disk.Open(path)
	if err != nil {
		return -1, err
	}
	return mapped(m.Take(), path, ns, attr)
}
