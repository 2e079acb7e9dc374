package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
	"github.com/tend-run/tend/process"
)

// sweepEvery is how often idle and stopped sandboxes are looked for.
const sweepEvery = 15 * time.Second

// sweepSeldom is the same while there are none. Creations set the clock.
const sweepSeldom = 10 * time.Minute

// Config of a Driver. Dir and Manager are needed.
type Config struct {
	// Dir holds the sandboxes; it is made if it is missing.
	Dir string
	// Manager of the machine's processes.
	Manager process.Manager
	// Top is the daemon's own topmost directory, from which users of sandboxes
	// are let pass to Dir. Empty: Dir.
	Top string
	// DefaultUser acts for sandboxes that name no user. Empty: the daemon's.
	DefaultUser string
	// Tell is told what becomes of the sandboxes.
	Tell driver.Tell
	Log  *slog.Logger // nil: nothing is logged
}

// Driver implements driver.Driver.
type Driver struct {
	cfg       Config
	log       *slog.Logger
	clock     *sandboxrecord.Clock // of deadlines
	sandboxes sandboxrecord.Registry[*sandbox]
}

var (
	_ driver.Driver = (*Driver)(nil)
	_ driver.Runner = (*Driver)(nil)
)

// Open reads the sandboxes that there are. Run ends those whose time is up.
func Open(cfg Config) (*Driver, error) {
	if cfg.Manager == nil || cfg.Dir == "" {
		return nil, &driver.InvalidError{Field: "config", Reason: "needs a manager and a directory"}
	}
	d := &Driver{cfg: cfg, log: cfg.Log, clock: sandboxrecord.NewClock()}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the sandboxes: %w", err)
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("directory of the sandboxes: %w", err)
	}
	for _, e := range entries {
		var rec record
		err := sandboxrecord.Read(filepath.Join(cfg.Dir, e.Name()), &rec)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a creation that did not come to its end
		}
		if err == nil && string(rec.ID) != e.Name() {
			err = fmt.Errorf("it is that of %.40q", rec.ID)
		}
		if err == nil {
			err = d.sandboxes.Restore(d.newSandbox(rec), &rec.Record)
		}
		if err != nil {
			d.log.Warn("record of a sandbox is not usable, leaving it", slog.String("dir", e.Name()), slog.Any("err", err))
		}
	}
	return d, nil
}

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() driver.Capabilities { return driver.Capabilities{Name: "host"} }

// Create implements driver.Driver.
func (d *Driver) Create(_ context.Context, spec driver.Spec) (driver.Sandbox, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := refuse(&spec); err != nil {
		return nil, err
	}
	b := d.newSandbox(record{Record: sandboxrecord.NewRecord(driver.NewID(), &spec)})
	b.mu.Lock() // calls that find it wait until it is made
	defer b.mu.Unlock()
	if err := d.sandboxes.Add(b, &b.rec.Record); err != nil {
		return nil, err
	}
	d.clock.Set(time.Now().Add(sweepEvery))
	if err := b.make(); err != nil {
		d.sandboxes.Remove(b.id)
		b.gone = true
		return nil, errors.Join(err, os.RemoveAll(b.home()))
	}
	d.cfg.Tell.Of(driver.EventCreated, b.info(), nil)
	d.log.Info("sandbox created", slog.String("id", string(b.id)), slog.String("name", b.rec.Name))
	d.clock.Set(spec.Deadline)
	return b, nil
}

// refuse names the first thing that a spec asks for and that there is not here.
// Limits of size are not enforced, which Info.Size says.
func refuse(s *driver.Spec) error {
	for _, f := range []struct {
		asked         bool
		field, reason string
	}{
		{s.Snapshot != "", "snapshot", "there are none of sandboxes that are not isolated"},
		{s.Template != "", "template", "there are none of sandboxes that are not isolated"},
		{s.Image != "", "image", "there are none of sandboxes that are not isolated"},
		{s.Isolation == driver.IsolationFull, "isolation", "a sandbox of this driver is the machine itself"},
		{len(s.Volumes) > 0, "volumes", "they are mounted in sandboxes that are isolated"},
		{len(s.Shares) > 0, "shares", "programs see all directories of the machine where they are"},
	} {
		if f.asked {
			return &driver.UnsupportedError{Field: f.field, Reason: f.reason}
		}
	}
	return refuseNetwork(&s.Network)
}

func refuseNetwork(n *driver.Network) error {
	if n.Mode > driver.NetworkDefault && n.Mode != driver.NetworkHost {
		return &driver.UnsupportedError{Field: "network.mode", Reason: "a sandbox that is not isolated has the network of the machine"}
	}
	const reason = "a sandbox that is not isolated has the network of the machine, without rules"
	switch {
	case len(n.Allow) > 0:
		return &driver.UnsupportedError{Field: "network.allow", Reason: reason}
	case len(n.Deny) > 0:
		return &driver.UnsupportedError{Field: "network.deny", Reason: reason}
	}
	return nil
}

// Get implements driver.Driver.
func (d *Driver) Get(_ context.Context, key string) (driver.Sandbox, error) {
	b, ok := d.sandboxes.Get(key)
	if !ok || b.isGone() {
		return nil, fmt.Errorf("%.200q: %w", key, driver.ErrNotFound)
	}
	return b, nil
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context) ([]driver.Info, error) {
	var infos []driver.Info
	for _, b := range d.sandboxes.All() {
		info, err := b.Info(ctx)
		if err == nil {
			infos = append(infos, info)
		}
	}
	driver.SortInfos(infos)
	return infos, nil
}

// Run stops idle sandboxes, destroys stopped ones whose time is up, and ends
// destructions that a crash cut short. It returns nil when ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	for {
		d.sweep(ctx, time.Now())
		wait := sweepEvery
		if len(d.sandboxes.All()) == 0 {
			wait = sweepSeldom
		}
		if !d.clock.Wait(ctx, wait) {
			return nil
		}
	}
}

func (d *Driver) sweep(ctx context.Context, now time.Time) {
	for _, b := range d.sandboxes.All() {
		err := b.expire(ctx, now)
		if err == nil {
			d.clock.Set(b.deadline())
		} else if ctx.Err() == nil {
			d.log.Warn("sandbox could not be ended at its time", slog.String("id", string(b.id)), slog.Any("err", err))
		}
	}
}
