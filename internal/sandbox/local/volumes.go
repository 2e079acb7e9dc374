package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/disk"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/image"
	"github.com/tend-run/tend/internal/sandbox/volume"
)

// volumesName is the directory of the volumes, which nobody but the daemon enters: a file
// ID.json for each, and its files below ID, or those of one with a limit in the disk ID.img.
const volumesName = ".volumes"

// mostVolumes is how many there may be.
const mostVolumes = 1000

// aVolume is what is kept of one. The JSON names are the format on disk.
type aVolume struct {
	ID      driver.VolumeID `json:"id"`
	Name    string          `json:"name"`
	Created time.Time       `json:"created"`
	Disk    int64           `json:"disk,omitempty"`
}

// mounted is a volume in the record of a sandbox.
type mounted struct {
	ID     driver.VolumeID `json:"id"`
	Name   string          `json:"name"`
	Target string          `json:"target"`
}

// volumes are all that there are. mu is held while one is removed, and while a sandbox that
// has some is entered: it is refused, or they stay.
type volumes struct {
	mu   sync.Mutex
	byID map[driver.VolumeID]*aVolume // guarded by mu
}

var _ driver.Volumer = (*Driver)(nil)

// openVolumes reads the volumes.
func (d *Driver) openVolumes() error {
	d.volumes.byID = map[driver.VolumeID]*aVolume{}
	dir := filepath.Join(d.cfg.Dir, volumesName)
	err := readRecords(d, "volume", dir, func(v *aVolume) string { return string(v.ID) }, func(v *aVolume) error {
		d.volumes.byID[v.ID] = v
		return nil
	})
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries { // files without a name: of a creation or a deletion that did not come to its end
		id, _, _ := strings.Cut(e.Name(), ".")
		if _, none := os.Lstat(d.volumeFile(driver.VolumeID(id))); driver.LikeID(id) && errors.Is(none, os.ErrNotExist) {
			err = errors.Join(err, d.discard(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

func (d *Driver) volumeFile(id driver.VolumeID) string { return d.volumeDir(id) + ".json" }

func (d *Driver) volumeDir(id driver.VolumeID) string {
	return filepath.Join(d.cfg.Dir, volumesName, string(id))
}

func (d *Driver) volumeImage(id driver.VolumeID) string { return d.volumeDir(id) + ".img" }

// filesOf is what holds the files of a volume: a directory, or a disk.
func (d *Driver) filesOf(v *aVolume) string {
	if v.Disk != 0 {
		return d.volumeImage(v.ID)
	}
	return d.volumeDir(v.ID)
}

// mayWrite is how many bytes the disks of volumes may still take.
func (v *volumes) mayWrite(file func(driver.VolumeID) string) (bytes int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, one := range v.byID {
		if one.Disk != 0 {
			bytes += max(image.FileSize(one.Disk)-image.Used(file(id)), 0)
		}
	}
	return bytes
}

// makeVolumeFiles makes what holds the files of a volume.
func (d *Driver) makeVolumeFiles(ctx context.Context, v *aVolume) error {
	path := d.filesOf(v)
	if v.Disk == 0 {
		return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, volume.DirMode)) // whatever the umask is
	}
	d.disks.Lock()
	defer d.disks.Unlock()
	if err := d.room(image.FileSize(v.Disk)); err != nil {
		return err
	}
	if err := image.Make(ctx, path, v.Disk); err != nil {
		return err
	}
	m, err := disk.Open(path)
	if err == nil {
		err = errors.Join(os.Chmod(m.Path(), volume.DirMode), os.Remove(filepath.Join(m.Path(), "lost+found")), m.Close())
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// volumeDisk is the limit of a new volume.
func (d *Driver) volumeDisk(ctx context.Context) (int64, error) {
	if d.cfg.VolumeDisk == 0 {
		return 0, nil
	}
	if err := d.join(ctx); err != nil {
		return 0, err
	}
	d.joining.Lock()
	defer d.joining.Unlock()
	if !slices.Contains(d.can.Layers, container.LayerDisk) {
		return 0, fmt.Errorf("volumes are limited by --volume-disk, which this machine cannot: %w", driver.ErrUnsupported)
	}
	return d.cfg.VolumeDisk, nil
}

// CreateVolume implements driver.Volumer.
func (d *Driver) CreateVolume(ctx context.Context, name string) (driver.Volume, error) {
	if err := driver.CheckVolumeName(name); err != nil {
		return driver.Volume{}, err
	}
	if err := d.volumes.free(name); err != nil {
		return driver.Volume{}, err
	}
	size, err := d.volumeDisk(ctx)
	if err != nil {
		return driver.Volume{}, err
	}
	v := &aVolume{ID: driver.NewVolumeID(), Name: name, Created: time.Now().UTC(), Disk: size}
	text, err := json.Marshal(v)
	if err != nil { // impossible: our own type
		return driver.Volume{}, err
	}
	if err := d.makeVolumeFiles(ctx, v); err != nil {
		return driver.Volume{}, fmt.Errorf("volume: %w", err)
	}
	d.volumes.mu.Lock()
	defer d.volumes.mu.Unlock()
	if err = d.volumes.freeLocked(name); err == nil { // nobody was faster
		err = atomicfile.Synced(d.volumeFile(v.ID), text, 0o600)
	}
	if err != nil {
		return driver.Volume{}, errors.Join(fmt.Errorf("volume: %w", err), os.Remove(d.filesOf(v)))
	}
	d.volumes.byID[v.ID] = v
	d.log.Info("volume created", slog.String("id", string(v.ID)), slog.String("name", name))
	return driver.Volume(*v), nil
}

// free reports whether there may be a volume of the name.
func (v *volumes) free(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.freeLocked(name)
}

// freeLocked is free; mu is held.
func (v *volumes) freeLocked(name string) error {
	if v.named(name) != nil {
		return fmt.Errorf("%q: %w", name, driver.ErrVolumeExists)
	}
	if len(v.byID) >= mostVolumes {
		return fmt.Errorf("%w: there are %d volumes, which is the limit; delete one", driver.ErrLimit, mostVolumes)
	}
	return nil
}

// named finds one by its name; nil: there is none. mu is held.
func (v *volumes) named(name string) *aVolume {
	for _, one := range v.byID {
		if one.Name == name {
			return one
		}
	}
	return nil
}

// Volumes implements driver.Volumer.
func (d *Driver) Volumes(context.Context) ([]driver.Volume, error) {
	d.volumes.mu.Lock()
	defer d.volumes.mu.Unlock()
	all := make([]driver.Volume, 0, len(d.volumes.byID))
	for _, v := range d.volumes.byID {
		all = append(all, driver.Volume(*v))
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Created.Before(all[j].Created) })
	return all, nil
}

// GetVolume implements driver.Volumer.
func (d *Driver) GetVolume(_ context.Context, id driver.VolumeID) (driver.Volume, error) {
	d.volumes.mu.Lock()
	defer d.volumes.mu.Unlock()
	if v := d.volumes.byID[id]; v != nil {
		return driver.Volume(*v), nil
	}
	return driver.Volume{}, fmt.Errorf("%.100q: %w", id, driver.ErrNoVolume)
}

// DeleteVolume implements driver.Volumer.
func (d *Driver) DeleteVolume(_ context.Context, id driver.VolumeID) error {
	d.volumes.mu.Lock()
	defer d.volumes.mu.Unlock()
	v := d.volumes.byID[id]
	if v == nil {
		return fmt.Errorf("%.100q: %w", id, driver.ErrNoVolume)
	}
	for _, s := range d.containers.All() {
		if by := s.has(id); by != "" {
			return fmt.Errorf("volume %q: the sandbox %s has it; destroy that first: %w", v.Name, by, driver.ErrInUse)
		}
	}
	// In this order: what is left of one that is half removed is files without a name.
	if err := os.Remove(d.volumeFile(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("volume %q: %w", v.Name, err)
	}
	delete(d.volumes.byID, id)
	if err := d.discard(d.filesOf(v)); err != nil {
		return fmt.Errorf("volume %q: its files: %w", v.Name, err)
	}
	d.log.Info("volume deleted", slog.String("id", string(id)), slog.String("name", v.Name))
	return nil
}

// has returns the sandbox's ID if it has the volume.
func (s *sandbox) has(id driver.VolumeID) driver.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone && slices.ContainsFunc(s.rec.Volumes, func(m mounted) bool { return m.ID == id }) {
		return s.id
	}
	return ""
}

// VolumeFiles implements driver.Volumer.
func (d *Driver) VolumeFiles(ctx context.Context, id driver.VolumeID) (driver.VolumeFiles, error) {
	v, err := d.GetVolume(ctx, id)
	if err != nil {
		return nil, err
	}
	if v.Disk == 0 {
		return volume.Open(d.volumeDir(id), d.uidBase() == 0)
	}
	if err := d.readyVolume(ctx, id); err != nil {
		return nil, err
	}
	m, err := disk.Open(d.volumeImage(id))
	if err != nil {
		return nil, fmt.Errorf("volume %q: %w", v.Name, err)
	}
	f, err := volume.Open(m.Path(), false)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &diskFiles{f, m}, nil
}

// diskFiles are those of a volume that is a disk, which is mounted for as long.
type diskFiles struct {
	*volume.Files
	mount *disk.Mount
}

func (f *diskFiles) Close() error { return errors.Join(f.Files.Close(), f.mount.Close()) }

// readyVolume repairs the disk of a volume after a loss of power.
func (d *Driver) readyVolume(ctx context.Context, id driver.VolumeID) error {
	repaired, err := image.Repair(ctx, d.volumeImage(id), 0)
	if err != nil {
		return fmt.Errorf("disk of volume %s: %w", id, err)
	}
	if repaired {
		d.log.Warn("disk of a volume was repaired: the machine has lost what was not written yet", slog.String("id", string(id)))
	}
	return nil
}

// readyVolumes does it for those of a sandbox that is to start.
func (s *sandbox) readyVolumes(ctx context.Context) (err error) {
	s.mu.Lock()
	all := s.rec.Volumes
	s.mu.Unlock()
	for _, m := range all {
		if v, verr := s.d.GetVolume(ctx, m.ID); verr == nil && v.Disk != 0 {
			err = errors.Join(err, s.d.readyVolume(ctx, m.ID))
		}
	}
	return err
}

// mounts finds the volumes that a spec names.
func (d *Driver) mounts(wanted []driver.VolumeMount) (all []mounted, err error) {
	d.volumes.mu.Lock()
	defer d.volumes.mu.Unlock()
	for i, m := range wanted {
		v := d.volumes.named(m.Name)
		if v == nil {
			return nil, &driver.InvalidError{Field: fmt.Sprintf("volumes[%d].name", i), Reason: fmt.Sprintf("is %q, which no volume has", m.Name)}
		}
		all = append(all, mounted{v.ID, v.Name, m.Target})
	}
	return all, nil
}

// enterWithVolumes is enter, for a sandbox whose volumes are there until it is destroyed.
func (d *Driver) enterWithVolumes(s *sandbox, rec *record) error {
	if len(rec.Volumes) == 0 {
		return d.enter(s, rec)
	}
	d.volumes.mu.Lock()
	defer d.volumes.mu.Unlock()
	for _, m := range rec.Volumes {
		if d.volumes.byID[m.ID] == nil {
			return fmt.Errorf("%q: %w", m.Name, driver.ErrNoVolume)
		}
	}
	return d.enter(s, rec)
}

// volumeBinds are the volumes of a record for its container.
func (d *Driver) volumeBinds(r *record) (all []container.Bind) {
	for _, m := range r.Volumes {
		bind := container.Bind{Source: d.volumeDir(m.ID), Target: m.Target}
		if _, err := os.Lstat(d.volumeImage(m.ID)); err == nil {
			bind.Source, bind.Disk = d.volumeImage(m.ID), true
		}
		all = append(all, bind)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Target < all[j].Target }) // one may be in another
	return all
}

// ofVolumes has an error about a bind name the volumes, if there is nothing else.
func (s *sandbox) ofVolumes(err error) error {
	invalid, ok := errors.AsType[*driver.InvalidError](err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok && strings.HasPrefix(invalid.Field, "shares") && len(s.rec.Shares) == 0 {
		return &driver.InvalidError{Field: "volumes.path", Reason: invalid.Reason}
	}
	return err
}

func (r *record) volumeMounts() (all []driver.VolumeMount) {
	for _, m := range r.Volumes {
		all = append(all, driver.VolumeMount{Name: m.Name, Target: m.Target})
	}
	return all
}
