package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// mostMaking is how many snapshots may be made of images at a time, and as many that could not
// be made are remembered.
const mostMaking = 16

// making are the snapshots of images that are not made yet, or could not be. A server that ends
// forgets them. snapshots.mu guards all but the queue.
type making struct {
	byID  map[driver.ID]*driver.Snapshot
	under int // that are not made yet
	queue chan func(context.Context)
}

func newMaking() making {
	return making{byID: map[driver.ID]*driver.Snapshot{}, queue: make(chan func(context.Context), mostMaking)}
}

// SnapshotImage implements driver.ImageSnapshotter.
func (d *Driver) SnapshotImage(ctx context.Context, p driver.Pull, spec driver.SnapshotSpec) (driver.Snapshot, error) {
	n := &snapshot{ID: driver.NewID(), Name: spec.Name, Tag: spec.Tag, Run: spec.Run, Created: time.Now().UTC()}
	err := errors.Join(driver.CheckName(n.Name), spec.Run.Validate())
	if n.Tag != "" {
		err = errors.Join(err, driver.CheckTag(n.Tag))
	}
	if err == nil {
		err = d.Unable(ctx)
	}
	if err != nil {
		return driver.Snapshot{}, err
	}
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	if err := d.snapshots.free(n); err != nil {
		return driver.Snapshot{}, err
	}
	m := &d.snapshots.making
	if m.under >= mostMaking {
		return driver.Snapshot{}, fmt.Errorf("%d snapshots of images are being made; try again later: %w", m.under, driver.ErrLimit)
	}
	m.trim()
	m.under++
	state := &driver.Snapshot{ID: n.ID, Name: n.Name, Tag: n.Tag, State: driver.Starting, Created: n.Created}
	m.byID[n.ID] = state
	m.queue <- func(ctx context.Context) { d.made(n, d.makeOfImage(ctx, p, n, spec.MaxBytes)) } // it has room for mostMaking
	return *state, nil
}

// trim forgets the oldest that could not be made. snapshots.mu is held.
func (m *making) trim() {
	if len(m.byID)-m.under < mostMaking {
		return
	}
	var oldest *driver.Snapshot
	for _, s := range m.byID {
		if s.State == driver.Failed && (oldest == nil || s.Created.Before(oldest.Created)) {
			oldest = s
		}
	}
	delete(m.byID, oldest.ID)
}

// forget forgets one that could not be made. snapshots.mu is held.
func (m *making) forget(key string) error {
	s := m.byID[driver.ID(key)]
	if s == nil {
		return fmt.Errorf("snapshot %.200q: %w", key, driver.ErrNotFound)
	}
	if s.State == driver.Starting {
		return fmt.Errorf("snapshot %s is being made: %w", s.ID, driver.ErrInUse)
	}
	delete(m.byID, s.ID)
	return nil
}

// makeSnapshots makes those that were asked for, until ctx ends.
func (d *Driver) makeSnapshots(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case do := <-d.snapshots.making.queue:
			wg.Go(func() { do(ctx) })
		}
	}
}

// makeOfImage gives a snapshot the files of an image, and keeps it.
func (d *Driver) makeOfImage(ctx context.Context, p driver.Pull, n *snapshot, most int64) error {
	image, err := d.wantImage(ctx, p, false)
	if err != nil {
		return err
	}
	if most > 0 && image.Bytes > most {
		return fmt.Errorf("image %.200s has files of %d MiB, and %d MiB were asked for: %w", p.Name, image.Bytes>>20, most>>20, driver.ErrLimit)
	}
	by := holder("snapshot", n.ID)
	top, run, err := d.images.Use(image.ID, by)
	if err != nil {
		return err
	}
	env := map[string]string{}
	maps.Copy(env, run.Env)
	maps.Copy(env, n.Run.Env)
	n.Layer, n.Run = top, driver.RunConfig{User: cmp.Or(n.Run.User, run.User), Dir: cmp.Or(n.Run.Dir, run.Dir), Env: env}
	if err := d.keepSnapshot(n); err != nil {
		d.layers.Release(top, by)
		return err
	}
	d.log.Info("snapshot made", slog.String("id", string(n.ID)), slog.String("image", image.ID))
	return nil
}

// made notes how the making of a snapshot ended.
func (d *Driver) made(n *snapshot, err error) {
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	m := &d.snapshots.making
	m.under--
	if err == nil {
		delete(m.byID, n.ID)
		return
	}
	m.byID[n.ID].State, m.byID[n.ID].Reason = driver.Failed, err.Error()
	d.log.Info("snapshot of an image failed", slog.String("id", string(n.ID)), slog.Any("err", err))
}
