package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/image"
)

// diskName is the file that holds the disk of a sandbox whose disk is limited.
const diskName = "disk.img"

func (s *sandbox) diskFile() string { return filepath.Join(s.dir(), diskName) }

// diskWait is how long a start waits for the end of the container before, whose mount writes what is
// in memory: a disk that met an error must be repaired, and not shared.
const diskWait = 5 * time.Second

// needDiskPrograms takes disks from what can be had where the programs are missing that make
// them. joining is held.
func (d *Driver) needDiskPrograms() {
	i := slices.Index(d.can.Layers, container.LayerDisk)
	if i < 0 {
		return
	}
	if err := image.Able(); err != nil {
		d.can.Layers = slices.Delete(slices.Clone(d.can.Layers), i, i+1)
		d.can.Missing = append(slices.Clone(d.can.Missing), container.Missing{Layer: container.LayerDisk, Reason: err.Error()})
	}
}

// diskFor is the size of the disk of a sandbox that asks for so much. 0: it gets none of its
// own, because nobody wants a limit, or none can be had here.
func (d *Driver) diskFor(asked int64) (int64, error) {
	if asked != 0 && (asked < image.Least || asked > image.Most) {
		return 0, &driver.InvalidError{Field: "size.disk", Reason: fmt.Sprintf("is %d bytes; %d MiB to %d TiB are allowed",
			asked, image.Least>>20, int64(image.Most>>40))}
	}
	d.joining.Lock()
	defer d.joining.Unlock()
	if !slices.Contains(d.can.Layers, container.LayerDisk) {
		return 0, nil
	}
	if asked == 0 {
		return d.defaults.Disk, nil
	}
	return asked, nil
}

// room reports whether so many bytes more can be written to the machine's disk, and each
// sandbox can still fill its own. The disks are sparse: without this, all together could
// fill the machine's, and then each of them, and the daemon, would meet errors.
func (d *Driver) room(bytes int64) error {
	free, err := freeOf(d.cfg.Dir)
	if err != nil {
		return err
	}
	for _, s := range d.containers.All() {
		s.mu.Lock()
		size := s.rec.Disk
		s.mu.Unlock()
		if size == 0 {
			continue
		}
		if used := image.Used(s.diskFile()); used > 0 { // it is made
			free -= max(image.FileSize(size)-used, 0)
		}
	}
	free -= d.volumes.mayWrite(d.volumeImage)
	if free < bytes {
		return fmt.Errorf("size.disk: %d MiB are needed below %s, and %d MiB are free there that the disk of no other sandbox may still need; ask for less, or remove sandboxes: %w",
			bytes>>20, d.cfg.Dir, max(free, 0)>>20, driver.ErrLimit)
	}
	return nil
}

// readyDisk makes or repairs the disk of a sandbox that is to start. s.life is held.
func (s *sandbox) readyDisk(ctx context.Context) error {
	s.mu.Lock()
	size, fresh := s.rec.Disk, s.hidden || s.rec.Disposable
	s.mu.Unlock()
	if size == 0 {
		return nil
	}
	path := s.diskFile()
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) && fresh {
		s.d.disks.Lock()
		defer s.d.disks.Unlock()
		if err := s.d.room(image.FileSize(size)); err != nil {
			return err
		}
		if err := image.Make(ctx, path, size); err != nil {
			return fmt.Errorf("disk of sandbox %s: %w", s.id, err)
		}
		return nil
	}
	repaired, err := image.Repair(ctx, path, diskWait)
	if err != nil {
		return fmt.Errorf("disk of sandbox %s: %w", s.id, err)
	}
	if repaired {
		s.d.log.Warn("disk of a sandbox was repaired: the machine has lost what was not written yet", slog.String("id", string(s.id)))
	}
	return nil
}

// diskUse is how full the sandbox's disk is. Without one of its own it is the machine's,
// with all that others have there.
func (s *sandbox) diskUse() space {
	s.mu.Lock()
	size, in := s.rec.Disk, s.container
	s.mu.Unlock()
	if size == 0 {
		return spaceOf(s.dir())
	}
	if in.PID != 0 {
		if now := spaceOf(rootOf(in)); now.total != 0 && alive(in) == nil {
			return space{min(now.used, size), size}
		}
	}
	return space{min(image.Used(s.diskFile()), size), size}
}
