package local

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
)

// from gives a record the files that its snapshot has. They are held until release.
func (d *Driver) from(rec *record) (release func(), err error) {
	if rec.Template != "" {
		return d.fromTemplate(rec)
	}
	if rec.Image != "" {
		return d.fromImage(rec)
	}
	if rec.Snapshot == "" {
		return func() {}, nil
	}
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	n := d.snapshots.find(rec.Snapshot)
	if n == nil {
		return nil, fmt.Errorf("snapshot %.200q: %w", rec.Snapshot, driver.ErrNotFound)
	}
	rec.Snapshot = string(n.ID)
	rec.begin(n.Layer, n.Run)
	rec.StartCommand, rec.ReadyCommand = n.Start, n.Ready
	return d.holdFor(n.Layer, holder("create", rec.ID))
}

// begin gives a record files, and what is configured where it says nothing itself.
func (r *record) begin(id layer.ID, run driver.RunConfig) {
	r.Layer, r.Origin = id, id
	r.User, r.Dir = cmp.Or(r.User, run.User), cmp.Or(r.Dir, run.Dir)
	env := maps.Clone(run.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, r.Env)
	r.Env = env
}

// fromTemplate does the same with its template.
func (d *Driver) fromTemplate(rec *record) (release func(), err error) {
	id, m, release, err := d.chosen(rec.Template, holder("create", rec.ID))
	if err != nil {
		return nil, err
	}
	rec.begin(m.Layer, m.Run)
	rec.TemplateID, rec.StartCommand, rec.ReadyCommand = id, m.Start, m.Ready
	rec.Size.CPUs = cmp.Or(rec.Size.CPUs, m.Size.CPUs)
	rec.Size.Memory, rec.Size.Tasks, rec.Size.Disk = cmp.Or(rec.Size.Memory, m.Size.Memory), cmp.Or(rec.Size.Tasks, m.Size.Tasks),
		cmp.Or(rec.Size.Disk, m.Size.Disk)
	return release, nil
}

// holdFor holds a layer until release.
func (d *Driver) holdFor(id layer.ID, by string) (release func(), err error) {
	if id == "" {
		return func() {}, nil
	}
	return func() { d.layers.Release(id, by) }, d.layers.Hold(id, by)
}

// holdLayers holds what the record says.
func (s *sandbox) holdLayers() error {
	for _, id := range []layer.ID{s.rec.Layer, s.rec.Origin} {
		if id == "" {
			continue
		}
		if err := s.d.layers.Hold(id, s.holder()); err != nil {
			return fmt.Errorf("its files: %w", err)
		}
	}
	return s.adopt()
}

func (s *sandbox) releaseLayers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d.layers.Release(s.rec.Layer, s.holder())
	s.d.layers.Release(s.rec.Origin, s.holder())
}

// setLayer notes another topmost layer, which is held already.
func (s *sandbox) setLayer(id layer.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.rec.Layer
	next := s.rec
	next.Layer = id
	if err := sandboxrecord.Write(s.dir(), &next, false); err != nil {
		return err
	}
	s.rec, s.unsynced = next, true
	if before != id && before != next.Origin {
		s.d.layers.Release(before, s.holder())
	}
	return nil
}

// rewind goes back to the files that it was made from.
func (s *sandbox) rewind() error {
	s.mu.Lock()
	now, origin := s.rec.Layer, s.rec.Origin
	s.mu.Unlock()
	if now == origin {
		return nil
	}
	return s.setLayer(origin)
}

// adopt finishes a seal that was cut short: the directory is in a layer of which the
// record does not know.
func (s *sandbox) adopt() error {
	up := filepath.Join(s.dir(), upName)
	if _, err := os.Lstat(up); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	below := s.rec.Layer
	s.mu.Unlock()
	if id, ok := s.d.layers.Sealed(up); ok && id != below {
		// One that was sealed before is below what the record says.
		chain, err := s.d.layers.Below(below, id)
		if err != nil {
			return err
		}
		if !chain {
			if err := errors.Join(s.d.layers.Hold(id, s.holder()), s.setLayer(id)); err != nil {
				return err
			}
			s.d.log.Info("seal of a sandbox's files is finished", slog.String("id", string(s.id)))
		}
	}
	return s.makeUp()
}

func (s *sandbox) makeUp() error {
	up := filepath.Join(s.dir(), upName)
	return errors.Join(os.Mkdir(up, 0o755), os.Chmod(up, 0o755)) // whatever the umask is
}
