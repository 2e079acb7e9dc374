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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/driver/local/layer"
	"github.com/tend-run/tend/driver/scope"
	"github.com/tend-run/tend/internal/replace"
	"github.com/tend-run/tend/process/box"
)

const (
	layersName    = ".layers"
	snapshotsName = ".snapshots"
	// maxSnapshot bounds the file of one, in bytes.
	maxSnapshot = 4 << 20
)

// snapshot is what is kept of one. The JSON names are the format on disk.
type snapshot struct {
	ID      driver.ID        `json:"id"`
	Name    string           `json:"name"`
	Sandbox driver.ID        `json:"sandbox"`
	Layer   layer.ID         `json:"layer,omitempty"` // none: it has the machine's files alone
	Run     driver.RunConfig `json:"run"`
	Created time.Time        `json:"created"`
}

// snapshots are all that there are.
type snapshots struct {
	mu   sync.Mutex
	byID map[driver.ID]*snapshot // guarded by mu
}

// find looks for an ID or a name. mu is held.
func (n *snapshots) find(key string) *snapshot {
	if s := n.byID[driver.ID(key)]; s != nil {
		return s
	}
	for _, s := range n.byID {
		if s.Name == key {
			return s
		}
	}
	return nil
}

// openLayers reads layers and snapshots.
func (d *Driver) openLayers() error {
	var err error
	if d.layers, err = layer.Open(filepath.Join(d.cfg.Dir, layersName)); err != nil {
		return err
	}
	d.snapshots.byID = map[driver.ID]*snapshot{}
	dir := filepath.Join(d.cfg.Dir, snapshotsName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("directory of the snapshots: %w", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("directory of the snapshots: %w", err)
	}
	for _, e := range names {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !driver.LikeID(id) {
			continue
		}
		var s snapshot
		b, err := replace.Read(filepath.Join(dir, e.Name()), maxSnapshot)
		if err == nil {
			err = json.Unmarshal(b, &s)
		}
		if err == nil && string(s.ID) != id {
			err = fmt.Errorf("it is that of %.40q", string(s.ID))
		}
		if err == nil && s.Layer != "" {
			err = d.layers.Hold(s.Layer, holder("snapshot", s.ID))
		}
		if err != nil {
			d.log.Warn("snapshot is not usable, leaving it", slog.String("file", e.Name()), slog.Any("err", err))
			continue
		}
		d.snapshots.byID[s.ID] = &s
	}
	return nil
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
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepEvery):
		}
	}
}

// from gives a record the files that its snapshot has. They are held until release.
func (d *Driver) from(rec *record) (release func(), err error) {
	if rec.Template != "" {
		return d.fromTemplate(rec)
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
	rec.Size.Memory, rec.Size.Tasks = cmp.Or(rec.Size.Memory, m.Size.Memory), cmp.Or(rec.Size.Tasks, m.Size.Tasks)
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
	if err := scope.Write(s.dir(), &next, false); err != nil {
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

// capture makes a layer of what the sandbox's files are now, for by. "" is a sandbox
// that has written nothing to the machine's files. s.life is held.
func (s *sandbox) capture(ctx context.Context, by string) (layer.ID, error) {
	s.mu.Lock()
	rec, in, live := s.rec, s.box, s.rec.live() && s.box.PID != 0
	s.mu.Unlock()
	if rec.UIDBase == 0 {
		return "", &driver.UnsupportedError{Field: "snapshot", Reason: "a sandbox of a daemon that is not root has none; run the daemon as root"}
	}
	written, err := some(filepath.Join(s.dir(), upName))
	if err != nil {
		return "", err
	}
	if len(written) == 0 {
		if rec.Layer == "" {
			return "", nil
		}
		return rec.Layer, s.d.layers.Hold(rec.Layer, by)
	}
	if !live {
		return s.seal(ctx, by)
	}
	// Starts wait until it is done.
	release, err := s.holdStarts()
	if err != nil {
		return "", err
	}
	defer release()
	if rec.PausedAt.IsZero() {
		idle, err := s.idle(ctx, in)
		if err != nil {
			return "", err
		}
		if idle {
			return s.sealLive(ctx, by)
		}
	}
	return s.copyLive(ctx, by, !rec.PausedAt.IsZero())
}

// idle reports whether nothing of the sandbox is in memory, neither processes nor
// files. If so its root is closed, and no file operation is under way.
func (s *sandbox) idle(ctx context.Context, in box.Info) (bool, error) {
	live, err := scope.List(ctx, s.d.cfg.Manager, s.id, true)
	if err != nil || len(live) > 0 || !alone(in) {
		return false, err
	}
	r, err := s.openRoot()
	if err != nil {
		return false, err
	}
	for _, dir := range []string{"/run", "/dev/shm"} {
		if !emptyInside(r, dir) {
			return false, nil
		}
	}
	s.forgetRoot()
	return !r.Busy(), nil
}

// sealLive ends the box, seals, and makes it again. s.life and s.starting are held.
func (s *sandbox) sealLive(ctx context.Context, by string) (layer.ID, error) {
	if err := s.d.cfg.Engine.End(ctx, box.ID(s.id)); err != nil {
		return "", fmt.Errorf("sandbox %s: %w", s.id, fault(err))
	}
	s.mu.Lock()
	s.box = box.Info{}
	s.mu.Unlock()
	id, err := s.seal(ctx, by)
	// It goes on, sealed or not.
	if berr := errors.Join(s.emptyWork(), s.begin(ctx)); berr != nil {
		err = errors.Join(err, berr, s.change(false, func(r *record) error {
			r.stopped("it could not be made again after a snapshot")
			return nil
		}))
	}
	return id, err
}

// seal moves the sandbox's directory to a layer. There is no box.
func (s *sandbox) seal(ctx context.Context, by string) (layer.ID, error) {
	if err := s.adopt(); err != nil {
		return "", err
	}
	parent, release, err := s.parent(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	id, err := s.d.layers.Seal(filepath.Join(s.dir(), upName), layer.Meta{Parent: parent, By: s.holder()})
	if err != nil {
		return "", err
	}
	return id, errors.Join(s.d.layers.Hold(id, by), s.setLayer(id), s.makeUp())
}

// copyLive copies what is in the sandbox's directory while nothing runs in it.
func (s *sandbox) copyLive(ctx context.Context, by string, frozen bool) (layer.ID, error) {
	if !frozen {
		if err := s.d.needs(box.LayerFreeze, "snapshot"); err != nil {
			return "", err
		}
	}
	parent, release, err := s.parent(ctx) // before it stands still
	if err != nil {
		return "", err
	}
	defer release()
	if !frozen {
		if err := s.d.cfg.Engine.Freeze(ctx, box.ID(s.id), true); err != nil {
			return "", errors.Join(fmt.Errorf("sandbox %s: %w", s.id, fault(err)), s.d.cfg.Engine.Freeze(ctx, box.ID(s.id), false))
		}
	}
	id, err := s.d.layers.Copy(ctx, filepath.Join(s.dir(), upName), layer.Meta{Parent: parent, By: by})
	if !frozen {
		// Whatever the copy's context says.
		if ferr := s.d.cfg.Engine.Freeze(context.WithoutCancel(ctx), box.ID(s.id), false); ferr != nil && !isOfBox(ferr) {
			err = errors.Join(err, fmt.Errorf("sandbox %s: %w", s.id, fault(ferr)))
		}
	}
	return id, err
}

// parent is the layer below a new one. A chain that is as long as may be is merged; the
// merged layer is held until release.
func (s *sandbox) parent(ctx context.Context) (id layer.ID, release func(), err error) {
	s.mu.Lock()
	top := s.rec.Layer
	s.mu.Unlock()
	none := func() {}
	if top == "" {
		return "", none, nil
	}
	chain, err := s.d.layers.Chain(top)
	if err != nil || len(chain.Dirs) < layer.MaxDepth {
		return top, none, err
	}
	by := holder("merge", s.id)
	if id, err = s.d.layers.Merge(ctx, top, layer.Meta{By: by}); err != nil {
		return "", none, err
	}
	return id, func() { s.d.layers.Release(id, by) }, nil
}

// Snapshot implements driver.Snapshotter.
func (d *Driver) Snapshot(ctx context.Context, id driver.ID, spec driver.SnapshotSpec) (driver.Snapshot, error) {
	n := &snapshot{ID: driver.NewID(), Name: spec.Name, Sandbox: id, Run: spec.Run, Created: time.Now().UTC()}
	if n.Name == "" {
		n.Name = "snapshot-" + string(n.ID[:8])
	}
	if err := errors.Join(driver.CheckName(n.Name), spec.Run.Validate()); err != nil {
		return driver.Snapshot{}, err
	}
	s, err := d.get(ctx, string(id))
	if err != nil {
		return driver.Snapshot{}, err
	}
	s.Touch()
	if err := d.free(n.Name); err != nil {
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
	env := maps.Clone(s.rec.Env)
	s.mu.Unlock()
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, n.Run.Env)
	n.Run.Env = env
	return s.capture(ctx, by)
}

func (d *Driver) free(name string) error {
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	if d.snapshots.find(name) != nil {
		return fmt.Errorf("snapshot %q: %w", name, driver.ErrExists)
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
	if d.snapshots.find(n.Name) != nil {
		return fmt.Errorf("snapshot %q: %w", n.Name, driver.ErrExists)
	}
	if err := replace.File(d.snapshotFile(n.ID), b, 0o600); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	d.snapshots.byID[n.ID] = n
	return nil
}

func (d *Driver) snapshotFile(id driver.ID) string {
	return filepath.Join(d.cfg.Dir, snapshotsName, string(id)+".json")
}

func (d *Driver) snapshotInfo(n *snapshot) driver.Snapshot {
	out := driver.Snapshot{ID: n.ID, Name: n.Name, State: driver.Ready, Sandbox: n.Sandbox, Created: n.Created}
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
	slices.SortFunc(all, func(a, b driver.Snapshot) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
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
		return fmt.Errorf("snapshot %.200q: %w", key, driver.ErrNotFound)
	}
	if err := os.Remove(d.snapshotFile(n.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("snapshot: %w", err)
	}
	delete(d.snapshots.byID, n.ID)
	d.layers.Release(n.Layer, holder("snapshot", n.ID))
	return nil
}

// Fork implements driver.Forker.
func (d *Driver) Fork(ctx context.Context, id driver.ID, spec driver.ForkSpec) ([]driver.ForkResult, error) {
	if spec.Count < 0 || spec.Count > driver.MaxForks {
		return nil, &driver.InvalidError{Field: "count", Reason: fmt.Sprintf("is %d; 1 to %d are allowed", spec.Count, driver.MaxForks)}
	}
	s, err := d.get(ctx, string(id))
	if err != nil {
		return nil, err
	}
	s.Touch()
	by := holder("fork", driver.NewID())
	top, rec, err := s.forked(ctx, by)
	if err != nil {
		return nil, err
	}
	defer d.layers.Release(top, by)
	results := make([]driver.ForkResult, max(spec.Count, 1))
	for i := range results {
		next := rec
		now := time.Now().UTC()
		next.ID = driver.NewID()
		next.Name, next.Created, next.Updated = "box-"+string(next.ID[:8]), now, now
		next.Deadline = spec.Deadline
		next.Env, next.OverEnv, next.Metadata, next.Notes = maps.Clone(rec.Env), maps.Clone(rec.OverEnv), maps.Clone(rec.Metadata), maps.Clone(rec.Notes)
		next.Layer, next.Origin = top, top
		if made, err := d.create(ctx, next); err != nil {
			results[i].Err = err
		} else {
			results[i].Sandbox = made
		}
	}
	return results, nil
}

// forked captures the files, and returns the record of a copy that runs.
func (s *sandbox) forked(ctx context.Context, by string) (layer.ID, record, error) {
	s.life.Lock()
	defer s.life.Unlock()
	if s.isGone() {
		return "", record{}, driver.ErrNotFound
	}
	top, err := s.capture(ctx, by)
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.rec
	rec.ready()
	return top, rec, err
}
