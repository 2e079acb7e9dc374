// Package multi combines two drivers: one that isolates sandboxes from the machine,
// and one whose sandboxes are the machine itself. driver.Spec.Isolation decides which
// one creates a sandbox. The abilities for a sandbox are those of its driver.
package multi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Driver is one of two. Get finds a name in the one that isolates first.
type Driver struct {
	full, none driver.Driver

	mu sync.Mutex
	// claims are the names that are being given now: of two creations by one name, in
	// both drivers, one fails. Nobody waits for a creation. Guarded by mu.
	claims map[string]*claim
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Runner      = (*Driver)(nil)
	_ driver.Pauser      = (*Driver)(nil)
	_ driver.Forker      = (*Driver)(nil)
	_ driver.Differ      = (*Driver)(nil)
	_ driver.Meter       = (*Driver)(nil)
	_ driver.Snapshotter = (*Driver)(nil)
)

// New returns the driver of both. A sandbox whose spec does not say is made by none.
func New(full, none driver.Driver) *Driver { return &Driver{full: full, none: none} }

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	of, other := d.none, d.full
	if spec.Isolation == driver.IsolationFull {
		of, other = other, of
	}
	if spec.Name != "" {
		release, err := d.claim(ctx, other, spec.Name)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	s, err := of.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &sandbox{s, d, other}, nil
}

// claim is a name that sandboxes of one driver are being given, which decides between
// them.
type claim struct {
	other driver.Driver // the one that may not have it
	n     int
}

// claim takes a name that the other driver does not have, and is not giving.
func (d *Driver) claim(ctx context.Context, other driver.Driver, name string) (release func(), err error) {
	d.mu.Lock()
	c := d.claims[name]
	if c == nil {
		c = &claim{other: other}
		if d.claims == nil {
			d.claims = map[string]*claim{}
		}
		d.claims[name] = c
	} else if c.other != other {
		d.mu.Unlock()
		return nil, fmt.Errorf("%q: %w", name, driver.ErrExists)
	}
	c.n++
	d.mu.Unlock()
	release = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if c.n--; c.n == 0 {
			delete(d.claims, name)
		}
	}
	if err := free(ctx, other, name); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// free reports a name that a sandbox of a driver has.
func free(ctx context.Context, d driver.Driver, name string) error {
	_, err := d.Get(ctx, name)
	if errors.Is(err, driver.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = driver.ErrExists
	}
	return fmt.Errorf("%q: %w", name, err)
}

// Get implements driver.Driver.
func (d *Driver) Get(ctx context.Context, key string) (driver.Sandbox, error) {
	s, of, err := d.find(ctx, key)
	if err != nil {
		return nil, err
	}
	return &sandbox{s, d, d.other(of)}, nil
}

// find returns the driver that has a sandbox.
func (d *Driver) find(ctx context.Context, key string) (driver.Sandbox, driver.Driver, error) {
	s, err := d.full.Get(ctx, key)
	if !errors.Is(err, driver.ErrNotFound) {
		return s, d.full, err
	}
	s, err = d.none.Get(ctx, key)
	return s, d.none, err
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context) ([]driver.Info, error) {
	full, err := d.full.List(ctx)
	if err != nil {
		return nil, err
	}
	none, err := d.none.List(ctx)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(full, none)
	driver.SortInfos(all)
	return all, nil
}

// Capabilities implements driver.Driver: those of sandboxes that are isolated.
func (d *Driver) Capabilities() driver.Capabilities {
	can := d.full.Capabilities()
	can.Name += " or " + d.none.Capabilities().Name
	return can
}

// Run implements driver.Runner.
func (d *Driver) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := [2]error{}
	var wg sync.WaitGroup
	for i, one := range []driver.Driver{d.full, d.none} {
		if r, ok := one.(driver.Runner); ok {
			wg.Go(func() {
				if errs[i] = r.Run(ctx); errs[i] != nil {
					cancel() // an error of one ends both
				}
			})
		}
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// able returns the ability A of the driver that has a sandbox.
func able[A any](ctx context.Context, d *Driver, id driver.ID) (a A, err error) {
	_, of, err := d.find(ctx, string(id))
	if err != nil {
		return a, err
	}
	a, ok := of.(A)
	if !ok {
		return a, &driver.UnsupportedError{Field: "isolation", Reason: "sandboxes of the driver " + of.Capabilities().Name + " cannot do this"}
	}
	return a, nil
}

// Pause implements driver.Pauser.
func (d *Driver) Pause(ctx context.Context, id driver.ID, spec driver.PauseSpec) error {
	p, err := able[driver.Pauser](ctx, d, id)
	if err != nil {
		return err
	}
	return p.Pause(ctx, id, spec)
}

// Resume implements driver.Pauser.
func (d *Driver) Resume(ctx context.Context, id driver.ID) error {
	p, err := able[driver.Pauser](ctx, d, id)
	if err != nil {
		return err
	}
	return p.Resume(ctx, id)
}

// Metrics implements driver.Meter.
func (d *Driver) Metrics(ctx context.Context, id driver.ID, from, to time.Time) ([]driver.Metric, error) {
	m, err := able[driver.Meter](ctx, d, id)
	if err != nil {
		return nil, err
	}
	return m.Metrics(ctx, id, from, to)
}

// Fork implements driver.Forker.
func (d *Driver) Fork(ctx context.Context, id driver.ID, spec driver.ForkSpec) ([]driver.ForkResult, error) {
	f, err := able[driver.Forker](ctx, d, id)
	if err != nil {
		return nil, err
	}
	results, err := f.Fork(ctx, id, spec)
	for i, r := range results {
		if r.Err == nil {
			results[i].Sandbox = &sandbox{r.Sandbox, d, d.other(f)}
		}
	}
	return results, err
}

// Changes implements driver.Differ.
func (d *Driver) Changes(ctx context.Context, id driver.ID, dir string, skip []string, most int) ([]driver.FileChange, error) {
	f, err := able[driver.Differ](ctx, d, id)
	if err != nil {
		return nil, err
	}
	return f.Changes(ctx, id, dir, skip, most)
}

// other is the driver that one is not.
func (d *Driver) other(one any) driver.Driver {
	if one == any(d.full) {
		return d.none
	}
	return d.full
}

// Snapshot implements driver.Snapshotter.
func (d *Driver) Snapshot(ctx context.Context, id driver.ID, spec driver.SnapshotSpec) (driver.Snapshot, error) {
	s, err := able[driver.Snapshotter](ctx, d, id)
	if err != nil {
		return driver.Snapshot{}, err
	}
	return s.Snapshot(ctx, id, spec)
}

// SnapshotImage implements driver.ImageSnapshotter.
func (d *Driver) SnapshotImage(ctx context.Context, p driver.Pull, spec driver.SnapshotSpec) (driver.Snapshot, error) {
	s, ok := d.full.(driver.ImageSnapshotter)
	if !ok {
		return driver.Snapshot{}, &driver.UnsupportedError{Field: "image", Reason: "the driver " + d.full.Capabilities().Name + " has none"}
	}
	return s.SnapshotImage(ctx, p, spec)
}

// snapshots are those of sandboxes that are isolated: there are no others.
func (d *Driver) snapshots() (driver.Snapshotter, error) {
	if s, ok := d.full.(driver.Snapshotter); ok {
		return s, nil
	}
	return nil, &driver.UnsupportedError{Field: "snapshot", Reason: "the driver " + d.full.Capabilities().Name + " has none"}
}

// GetSnapshot implements driver.Snapshotter.
func (d *Driver) GetSnapshot(ctx context.Context, key string) (driver.Snapshot, error) {
	s, err := d.snapshots()
	if err != nil {
		return driver.Snapshot{}, err
	}
	return s.GetSnapshot(ctx, key)
}

// Snapshots implements driver.Snapshotter.
func (d *Driver) Snapshots(ctx context.Context) ([]driver.Snapshot, error) {
	s, err := d.snapshots()
	if err != nil {
		return nil, err
	}
	return s.Snapshots(ctx)
}

// DeleteSnapshot implements driver.Snapshotter.
func (d *Driver) DeleteSnapshot(ctx context.Context, key string) error {
	s, err := d.snapshots()
	if err != nil {
		return err
	}
	return s.DeleteSnapshot(ctx, key)
}

// sandbox takes no name that a sandbox of the other driver has.
type sandbox struct {
	driver.Sandbox
	d     *Driver
	other driver.Driver
}

// Update implements driver.Sandbox.
func (s *sandbox) Update(ctx context.Context, c driver.Change) (driver.Info, error) {
	if c.Name != nil {
		release, err := s.d.claim(ctx, s.other, *c.Name)
		if err != nil {
			return driver.Info{}, err
		}
		defer release()
	}
	return s.Sandbox.Update(ctx, c)
}

// RootFiles implements driver.RootFiler.
func (s *sandbox) RootFiles(user, dir string) (driver.Files, error) {
	if r, ok := s.Sandbox.(driver.RootFiler); ok {
		return r.RootFiles(user, dir)
	}
	return nil, &driver.UnsupportedError{Field: "isolation", Reason: "root of a sandbox without isolation is the machine's"}
}
