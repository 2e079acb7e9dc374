package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
)

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := d.refuse(&spec); err != nil {
		return nil, err
	}
	if err := d.Unable(ctx); err != nil {
		return nil, err
	}
	rec := record{
		Record: sandboxrecord.NewRecord(d.newID(), &spec), Shares: slices.Clone(spec.Shares), Snapshot: spec.Snapshot, Template: spec.Template,
		Image: spec.Image, Size: spec.Size, Network: spec.Network.Mode,
		Way: d.way(),
	}
	var err error
	if rec.Volumes, err = d.mounts(spec.Volumes); err != nil {
		return nil, err
	}
	rec.rules(&spec.Network)
	if rec.Network == driver.NetworkDefault {
		rec.Network = driver.NetworkOwn
	}
	release, err := d.from(&rec)
	if err != nil {
		return nil, err
	}
	defer release()
	if rec.Disk, err = d.diskFor(rec.Size.Disk); err != nil {
		return nil, err
	}
	if err := d.containers.Room(&rec.Record); err != nil {
		return nil, err
	}
	var s *sandbox
	if spec.Name == "" {
		s, err = d.takeOrCreate(ctx, rec)
	} else {
		s, err = d.create(ctx, rec)
	}
	if err != nil {
		return nil, err
	}
	start := rec.StartCommand
	if s.warm {
		start = ""
	}
	if err := s.startUp(ctx, start, rec.ReadyCommand, false); err != nil {
		return nil, errors.Join(err, s.Destroy(ctx))
	}
	return s, nil
}

// create makes the sandbox of a record. A caller that goes away does not leave it
// half made.
func (d *Driver) create(ctx context.Context, rec record) (*sandbox, error) {
	ctx = context.WithoutCancel(ctx)
	d.giveIDs(&rec)
	s := d.newSandbox(rec)
	s.life.Lock() // calls that find it wait until it is made
	defer s.life.Unlock()
	s.hidden = true
	if err := d.enterWithVolumes(s, &rec); err != nil {
		d.ids.free(rec.UIDBase)
		return nil, err
	}
	err := s.make(ctx)
	if err == nil {
		err = s.enlist()
	}
	if err != nil {
		return nil, s.abandon(ctx, err)
	}
	return s, nil
}

// abandon takes back a creation that failed, and returns why. s.life is held.
func (s *sandbox) abandon(ctx context.Context, err error) error {
	d := s.d
	s.releaseLayers()
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	s.forgetRoot()
	s.disconnect()
	ended := d.cfg.Engine.End(ctx, container.ID(s.id))
	if ended != nil {
		d.strays.Store(true) // the sweep ends it
		d.clock.Set(time.Now().Add(sweepEvery))
	}
	if s.warm && ended == nil {
		ended = sandboxrecord.End(ctx, d.cfg.Manager, s.id, true)
	}
	err = errors.Join(err, ended, d.discard(s.dir()))
	d.containers.Remove(s.id)
	if ended == nil { // else the container may still have them: the next server knows
		s.returnIDs()
	}
	return err
}

// make makes directories and container. s.life is held.
func (s *sandbox) make(ctx context.Context) error {
	if err := errors.Join(os.Mkdir(s.dir(), 0o700), s.makeDirs()); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	if err := s.holdLayers(); err != nil {
		return err
	}
	failpoint.Hit(failpoint.SandboxFolders)
	if err := s.begin(ctx); err != nil {
		return err
	}
	failpoint.Hit(failpoint.SandboxBegun)
	return nil
}

// enlist writes the record of a sandbox that is made: from then on there is one. s.life is
// held.
func (s *sandbox) enlist() error {
	u, err := s.account("")
	if err != nil {
		return &driver.InvalidError{Field: "run.user", Reason: fmt.Sprintf("cannot be used: %v", err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.Home = u.Home
	if err := sandboxrecord.Write(s.dir(), &s.rec, false); err != nil {
		return err
	}
	s.unsynced, s.hidden = true, false
	s.tellOf(driver.EventCreated, nil)
	failpoint.Hit(failpoint.SandboxRecorded)
	s.d.log.Info("sandbox created", slog.String("id", string(s.id)), slog.String("name", s.rec.Name))
	s.d.clock.Set(s.rec.Deadline)
	return nil
}

const upName, workName = "up", "wk"

// makeDirs makes what the overlay needs.
func (s *sandbox) makeDirs() error {
	for _, name := range []string{upName, workName} {
		dir := filepath.Join(s.dir(), name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask is
			return err
		}
	}
	return nil
}

// refuse names the first thing that a spec asks for and that there is not here.
func (d *Driver) refuse(s *driver.Spec) error {
	for _, f := range []struct {
		asked         bool
		field, reason string
	}{
		{s.Isolation == driver.IsolationNone, "isolation", "a sandbox of this driver is always isolated"},
	} {
		if f.asked {
			return &driver.UnsupportedError{Field: f.field, Reason: f.reason}
		}
	}
	for _, share := range s.Shares { // has no links: the keeper refuses those each time
		touches, err := d.touchesState(share.Source)
		if err != nil {
			return err
		}
		if touches {
			return &driver.InvalidError{Field: "shares.source", Reason: fmt.Sprintf("is %.200q, where the daemon's own files are", share.Source)}
		}
	}
	return d.refuseRules(&s.Network)
}

// touchesState reports whether a path is in the state directory, or has it in itself. That
// directory may be reached over links, too.
func (d *Driver) touchesState(path string) (bool, error) {
	state, err := filepath.EvalSymlinks(d.cfg.State)
	if err != nil {
		return false, fmt.Errorf("state directory: %w", err)
	}
	return below(path, d.cfg.State) || below(d.cfg.State, path) || below(path, state) || below(state, path), nil
}

func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// boxSpec is what the keeper is asked for, with these limits, but for Harden. s.mu is held.
func (s *sandbox) containerSpec(size driver.Size) (container.Spec, error) {
	r, cfg := &s.rec, &s.d.cfg
	spec := container.Spec{
		ID: container.ID(r.ID), Hostname: hostname(r.Name), Dir: s.dir(), Base: container.BaseHost,
		Hide: append([]string{cfg.State}, cfg.Hide...), Show: cfg.Show, UIDBase: r.UIDBase, Net: container.NetOwn,
		Limits:   container.Limits{Memory: size.Memory, Tasks: size.Tasks, CPUs: size.CPUs},
		Volatile: true,
	}
	if r.Disk != 0 {
		spec.Disk = s.diskFile()
	}
	if r.Layer != "" {
		chain, err := s.d.layers.Chain(r.Layer)
		if err != nil {
			return container.Spec{}, fmt.Errorf("sandbox %s: its files: %w", r.ID, err)
		}
		if spec.Layers = chain.Dirs; chain.Whole {
			spec.Base, spec.Hide, spec.Show = container.BaseNone, nil, nil
		}
	}
	switch r.Network {
	case driver.NetworkNone:
		spec.Net = container.NetNone
	case driver.NetworkHost:
		spec.Net = container.NetHost
	}
	for _, share := range r.Shares {
		target := cmp.Or(share.Target, share.Source)
		if share.Copy {
			spec.Copies = append(spec.Copies, container.Copy{Source: share.Source, Target: target})
			continue
		}
		spec.Binds = append(spec.Binds, container.Bind{Source: share.Source, Target: target, ReadOnly: share.ReadOnly})
	}
	spec.Binds = append(spec.Binds, s.d.volumeBinds(r)...)
	return spec, nil
}

// Capabilities that root keeps inside, by their numbers (capabilities(7)): what a
// container's root has, without raw sockets, device nodes and the audit log.
const keptCapabilities = 1<<0 | // chown
	1<<1 | // dac_override
	1<<3 | // fowner
	1<<4 | // fsetid
	1<<5 | // kill
	1<<6 | // setgid
	1<<7 | // setuid
	1<<8 | // setpcap
	1<<10 | // net_bind_service
	1<<18 | // sys_chroot
	1<<31 // setfcap

// harden asks for each layer that there is. Capabilities says which.
func (d *Driver) harden() container.Harden {
	d.joining.Lock()
	defer d.joining.Unlock()
	return container.Harden{
		Caps:    keptCapabilities,
		Seccomp: slices.Contains(d.can.Layers, container.LayerSeccomp), Landlock: slices.Contains(d.can.Layers, container.LayerLandlock),
	}
}

// hostname is the name inside, of letters, digits, '.' and '-'.
func hostname(name string) string {
	h := strings.Map(func(r rune) rune {
		if r == '_' {
			return '-'
		}
		return r
	}, name)
	return h[:min(len(h), 64)]
}
