package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
)

const (
	layersName    = ".layers"
	snapshotsName = ".snapshots"
)

// snapshot is what is kept of one. The JSON names are the format on disk.
type snapshot struct {
	ID      driver.ID        `json:"id"`
	Name    string           `json:"name"`
	Tag     string           `json:"tag,omitempty"`   // of several with that name
	Moved   bool             `json:"moved,omitempty"` // a newer one has the tag: it is found by its ID alone
	Sandbox driver.ID        `json:"sandbox"`
	Layer   layer.ID         `json:"layer,omitempty"` // none: it has the machine's files alone
	Run     driver.RunConfig `json:"run"`
	// Start and Ready are the commands of the sandbox's template, if it has one.
	Start   string    `json:"start,omitempty"`
	Ready   string    `json:"ready,omitempty"`
	Created time.Time `json:"created"`
}

// snapshots are all that there are.
type snapshots struct {
	mu   sync.Mutex
	byID map[driver.ID]*snapshot // guarded by mu

	making making // of images; guarded by mu
}

// find looks for an ID, "name:tag" or a name. mu is held.
func (n *snapshots) find(key string) *snapshot {
	if s := n.byID[driver.ID(key)]; s != nil {
		return s
	}
	name, tag, tagged := strings.Cut(key, ":")
	if tagged {
		return n.tagged(name, tag)
	}
	if s := n.tagged(name, driver.LatestTag); s != nil {
		return s
	}
	return n.tagged(name, "")
}

// tagged is the newest of that name and tag; "" is none. A server that died while a tag
// moved may have left it with two. mu is held.
func (n *snapshots) tagged(name, tag string) (found *snapshot) {
	for _, s := range n.byID {
		if s.Name == name && s.Tag == tag && !s.Moved && (found == nil || s.Created.After(found.Created)) {
			found = s
		}
	}
	return found
}

// openLayers reads layers and snapshots.
func (d *Driver) openLayers() error {
	var err error
	if d.layers, err = layer.Open(filepath.Join(d.cfg.Dir, layersName)); err != nil {
		return err
	}
	d.snapshots.byID, d.snapshots.making = map[driver.ID]*snapshot{}, newMaking()
	return readRecords(d, "snapshot", filepath.Join(d.cfg.Dir, snapshotsName), func(s *snapshot) string { return string(s.ID) },
		func(s *snapshot) error {
			if s.Layer != "" {
				if err := d.layers.Hold(s.Layer, holder("snapshot", s.ID)); err != nil {
					return err
				}
			}
			d.snapshots.byID[s.ID] = s
			return nil
		})
}

func holder(kind string, id driver.ID) string { return kind + " " + string(id) }

func (s *sandbox) holder() string { return holder("sandbox", s.id) }

// layersSwept is how long a layer of a template's step stays that nobody uses.
const layersSwept = 7 * 24 * time.Hour

// sweepLayers removes layers that nobody needs, and forces new ones to the disk.
func (d *Driver) sweepLayers(ctx context.Context) {
	for {
		if err := d.layers.Sweep(ctx, layersSwept); err != nil && ctx.Err() == nil {
			d.log.Warn("layers are not cleared away", slog.Any("err", err))
		}
		wait := sweepEvery
		if d.layers.Empty() {
			wait = sweepSeldom
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			continue
		case <-d.layers.Changed():
		}
		select { // what changes meanwhile is swept with it
		case <-ctx.Done():
			return
		case <-time.After(sweepEvery):
		}
	}
}

// Snapshot implements driver.Snapshotter.
func (d *Driver) Snapshot(ctx context.Context, id driver.ID, spec driver.SnapshotSpec) (driver.Snapshot, error) {
	n := &snapshot{ID: driver.NewID(), Name: spec.Name, Tag: spec.Tag, Sandbox: id, Run: spec.Run, Created: time.Now().UTC()}
	if n.Name == "" {
		n.Name = "snapshot-" + string(n.ID[:8])
	}
	err := errors.Join(driver.CheckName(n.Name), spec.Run.Validate())
	if n.Tag != "" {
		err = errors.Join(err, driver.CheckTag(n.Tag))
	}
	if err != nil {
		return driver.Snapshot{}, err
	}
	s, err := d.get(ctx, string(id))
	if err != nil {
		return driver.Snapshot{}, err
	}
	s.Touch()
	if err := d.free(n); err != nil {
		return driver.Snapshot{}, err
	}
	by := holder("snapshot", n.ID)
	if n.Layer, err = s.captured(ctx, by, n); err != nil {
		return driver.Snapshot{}, err
	}
	if err := d.keepSnapshot(n); err != nil {
		d.layers.Release(n.Layer, by)
		return driver.Snapshot{}, err
	}
	s.told(driver.EventSnapshot, nil)
	d.log.Info("snapshot made", slog.String("id", string(n.ID)), slog.String("sandbox", string(id)))
	return d.snapshotInfo(n), nil
}

// captured is capture with the sandbox's own configuration where the snapshot's says
// nothing.
func (s *sandbox) captured(ctx context.Context, by string, n *snapshot) (layer.ID, error) {
	s.life.Lock()
	defer s.life.Unlock()
	if s.isGone() {
		return "", driver.ErrNotFound
	}
	s.mu.Lock()
	n.Run.User, n.Run.Dir = cmp.Or(n.Run.User, s.rec.User), cmp.Or(n.Run.Dir, s.rec.Dir)
	n.Start, n.Ready = s.rec.StartCommand, s.rec.ReadyCommand
	env := maps.Clone(s.rec.Env)
	s.mu.Unlock()
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, n.Run.Env)
	n.Run.Env = env
	return s.capture(ctx, by)
}

func (d *Driver) free(n *snapshot) error {
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	return d.snapshots.free(n)
}

// free reports whether a name is taken. With a tag it never is. mu is held.
func (n *snapshots) free(s *snapshot) error {
	if s.Tag != "" {
		return nil
	}
	for _, other := range n.byID {
		if other.Name == s.Name {
			return fmt.Errorf("snapshot %q: %w", s.Name, driver.ErrExists)
		}
	}
	return nil
}

// keepSnapshot adds a snapshot. Its file is forced to the disk with its layers.
func (d *Driver) keepSnapshot(n *snapshot) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	if err := d.snapshots.free(n); err != nil {
		return err
	}
	if err := atomicfile.File(d.snapshotFile(n.ID), b, 0o600); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	var before []*snapshot
	for _, s := range d.snapshots.byID {
		if n.Tag != "" && s.Name == n.Name && s.Tag == n.Tag && !s.Moved {
			before = append(before, s)
		}
	}
	d.snapshots.byID[n.ID] = n
	for _, s := range before { // by its ID it stays
		d.untag(s)
	}
	return nil
}

// untag takes the tag of a snapshot, which a newer one has. If its file cannot be written,
// the newer one has the tag all the same. snapshots.mu is held.
func (d *Driver) untag(s *snapshot) {
	next := *s
	next.Moved = true
	b, err := json.Marshal(&next)
	if err == nil {
		err = atomicfile.File(d.snapshotFile(s.ID), b, 0o600)
	}
	if err != nil {
		d.log.Warn("a snapshot keeps a tag that has moved", slog.String("id", string(s.ID)), slog.Any("err", err))
	}
	d.snapshots.byID[s.ID] = &next
}

func (d *Driver) snapshotFile(id driver.ID) string {
	return filepath.Join(d.cfg.Dir, snapshotsName, string(id)+".json")
}

func (d *Driver) snapshotInfo(n *snapshot) driver.Snapshot {
	out := driver.Snapshot{ID: n.ID, Name: n.Name, Tag: n.Tag, State: driver.Ready, Sandbox: n.Sandbox, Created: n.Created}
	if n.Moved {
		out.Tag = ""
	}
	if info, err := d.layers.Get(n.Layer); err == nil {
		out.Bytes = info.Bytes
		if info.Suspect() {
			out.Reason = "the machine was restarted before all of it was on the disk; content may be missing"
		}
	}
	return out
}

// GetSnapshot implements driver.Snapshotter.
func (d *Driver) GetSnapshot(_ context.Context, key string) (driver.Snapshot, error) {
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	if n := d.snapshots.find(key); n != nil {
		return d.snapshotInfo(n), nil
	}
	if s := d.snapshots.making.byID[driver.ID(key)]; s != nil {
		return *s, nil
	}
	return driver.Snapshot{}, fmt.Errorf("snapshot %.200q: %w", key, driver.ErrNotFound)
}

// Snapshots implements driver.Snapshotter.
func (d *Driver) Snapshots(context.Context) ([]driver.Snapshot, error) {
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	var all []driver.Snapshot
	for _, n := range d.snapshots.byID {
		all = append(all, d.snapshotInfo(n))
	}
	for _, s := range d.snapshots.making.byID {
		all = append(all, *s)
	}
	sort.Slice(all, func(i, j int) bool {
		return cmp.Or(all[i].Created.Compare(all[j].Created), cmp.Compare(all[i].ID, all[j].ID)) < 0
	})
	return all, nil
}

// DeleteSnapshot implements driver.Snapshotter. Sandboxes that were made from it keep
// their files.
func (d *Driver) DeleteSnapshot(_ context.Context, key string) error {
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	n := d.snapshots.find(key)
	if n == nil {
		return d.snapshots.making.forget(key)
	}
	if err := os.Remove(d.snapshotFile(n.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("snapshot: %w", err)
	}
	delete(d.snapshots.byID, n.ID)
	d.layers.Release(n.Layer, holder("snapshot", n.ID))
	d.dropSpare()
	return nil
}
