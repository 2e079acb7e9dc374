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
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/volume"
)

// volumesName is the directory of the volumes, which nobody but the daemon enters: a file
// ID.json for each, and its files below ID.
const volumesName = ".volumes"

// mostVolumes is how many there may be.
const mostVolumes = 1000

// aVolume is what is kept of one. The JSON names are the format on disk.
type aVolume struct {
	ID      driver.VolumeID `json:"id"`
	Name    string          `json:"name"`
	Created time.Time       `json:"created"`
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
		id := driver.VolumeID(e.Name())
		if _, none := os.Lstat(d.volumeFile(id)); e.IsDir() && driver.LikeID(e.Name()) && errors.Is(none, os.ErrNotExist) {
			err = errors.Join(err, d.discard(d.volumeDir(id)))
		}
	}
	return err
}

func (d *Driver) volumeFile(id driver.VolumeID) string { return d.volumeDir(id) + ".json" }

func (d *Driver) volumeDir(id driver.VolumeID) string {
	return filepath.Join(d.cfg.Dir, volumesName, string(id))
}

// CreateVolume implements driver.Volumer.
func (d *Driver) CreateVolume(_ context.Context, name string) (driver.Volume, error) {
	if err := driver.CheckVolumeName(name); err != nil {
		return driver.Volume{}, err
	}
	d.volumes.mu.Lock()
	defer d.volumes.mu.Unlock()
	if d.volumes.named(name) != nil {
		return driver.Volume{}, fmt.Errorf("%q: %w", name, driver.ErrVolumeExists)
	}
	if len(d.volumes.byID) >= mostVolumes {
		return driver.Volume{}, fmt.Errorf("%w: there are %d volumes, which is the limit; delete one", driver.ErrLimit, mostVolumes)
	}
	v := &aVolume{ID: driver.NewVolumeID(), Name: name, Created: time.Now().UTC()}
	text, err := json.Marshal(v)
	if err != nil { // impossible: our own type
		return driver.Volume{}, err
	}
	dir := d.volumeDir(v.ID)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, volume.DirMode)); err != nil { // whatever the umask is
		return driver.Volume{}, fmt.Errorf("volume: %w", err)
	}
	if err := atomicfile.Synced(d.volumeFile(v.ID), text, 0o600); err != nil {
		return driver.Volume{}, errors.Join(fmt.Errorf("volume: %w", err), os.Remove(dir))
	}
	d.volumes.byID[v.ID] = v
	d.log.Info("volume created", slog.String("id", string(v.ID)), slog.String("name", name))
	return driver.Volume(*v), nil
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
	slices.SortFunc(all, func(a, b driver.Volume) int { return a.Created.Compare(b.Created) })
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
	for _, s := range d.boxes.All() {
		if by := s.has(id); by != "" {
			return fmt.Errorf("volume %q: the sandbox %s has it; destroy that first: %w", v.Name, by, driver.ErrInUse)
		}
	}
	// In this order: what is left of one that is half removed is files without a name.
	if err := os.Remove(d.volumeFile(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("volume %q: %w", v.Name, err)
	}
	delete(d.volumes.byID, id)
	if err := d.discard(d.volumeDir(id)); err != nil {
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
	return volume.Open(d.volumeDir(v.ID), d.cfg.UIDBase == 0)
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

// volumeBinds are the volumes of a record for its box.
func (d *Driver) volumeBinds(r *record) (all []box.Bind) {
	for _, m := range r.Volumes {
		all = append(all, box.Bind{Source: d.volumeDir(m.ID), Target: m.Target})
	}
	slices.SortFunc(all, func(a, b box.Bind) int { return strings.Compare(a.Target, b.Target) }) // one may be in another
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
