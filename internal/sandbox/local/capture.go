package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/disk"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/image"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
)

// capture makes a layer of what the sandbox's files are now, for by. "" is a sandbox
// that has written nothing to the machine's files. s.life is held.
func (s *sandbox) capture(ctx context.Context, by string) (layer.ID, error) {
	s.mu.Lock()
	rec, in, live := s.rec, s.container, s.rec.live() && s.container.PID != 0
	s.mu.Unlock()
	if rec.UIDBase != 0 && slices.Contains(strings.Fields(rec.Way), container.WayPlain) {
		return "", &driver.UnsupportedError{Field: "snapshot", Reason: container.NoCopies + "; " + container.InContainer}
	}
	up, closeUp, err := s.upper(&rec)
	if err != nil {
		return "", err
	}
	defer closeUp()
	written, err := some(up)
	if err != nil && !(rec.Disk != 0 && errors.Is(err, os.ErrNotExist)) { // of a container that was never there
		return "", err
	}
	if len(written) == 0 {
		if rec.Layer == "" {
			return "", nil
		}
		return rec.Layer, s.d.layers.Hold(rec.Layer, by)
	}
	if !live && rec.Disk != 0 {
		return s.copyLive(ctx, by, up, true)
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
		if idle && rec.Disk == 0 {
			return s.sealLive(ctx, by)
		}
		if idle {
			return s.copyLive(ctx, by, up, true)
		}
	}
	return s.copyLive(ctx, by, up, !rec.PausedAt.IsZero())
}

// upper is the directory of what the sandbox has written. One with a disk of its own is
// copied, never moved: a layer is on the machine's disk.
func (s *sandbox) upper(rec *record) (dir string, closeUp func(), err error) {
	if rec.Disk == 0 {
		return filepath.Join(s.dir(), upName), func() {}, nil
	}
	m, err := disk.Open(s.diskFile())
	if errors.Is(err, os.ErrNotExist) && rec.Disposable { // it was stopped, and nothing is left
		return filepath.Join(s.dir(), upName), func() {}, nil
	}
	if err == nil {
		if err = s.d.room(image.Used(s.diskFile())); err != nil {
			_ = m.Close()
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("sandbox %s: %w", s.id, err)
	}
	return filepath.Join(m.Path(), upName), func() { _ = m.Close() }, nil
}

// idle reports whether nothing of the sandbox is in memory, neither processes nor
// files. If so its root is closed, and no file operation is under way.
func (s *sandbox) idle(ctx context.Context, in container.Info) (bool, error) {
	live, err := sandboxrecord.List(ctx, s.d.cfg.Manager, s.id, true)
	if err != nil || len(live) > 0 {
		return false, err
	}
	r, err := s.openRoot()
	if err != nil || !alone(in, r) {
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

// sealLive ends the container, seals, and makes it again. s.life and s.starting are held.
func (s *sandbox) sealLive(ctx context.Context, by string) (layer.ID, error) {
	s.disconnect() // the next container has a network of its own
	if err := s.d.cfg.Engine.End(ctx, container.ID(s.id)); err != nil {
		return "", fmt.Errorf("sandbox %s: %w", s.id, fault(err))
	}
	s.mu.Lock()
	s.container = container.Info{}
	s.mu.Unlock()
	id, err := s.seal(ctx, by)
	// It continues, sealed or not.
	if berr := errors.Join(s.emptyWork(), s.begin(ctx)); berr != nil {
		err = errors.Join(err, berr, s.change(false, func(r *record) error {
			r.stopped("it could not be made again after a snapshot")
			return nil
		}))
	}
	return id, err
}

// seal moves the sandbox's directory to a layer. There is no container.
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

// copyLive copies what is in the sandbox's directory up while nothing runs in it: frozen,
// if that is so already.
func (s *sandbox) copyLive(ctx context.Context, by, up string, frozen bool) (layer.ID, error) {
	if !frozen {
		if err := s.d.needs(container.LayerFreeze, "snapshot"); err != nil {
			return "", err
		}
	}
	parent, release, err := s.parent(ctx) // before it stands still
	if err != nil {
		return "", err
	}
	defer release()
	if !frozen {
		if err := s.d.cfg.Engine.Freeze(ctx, container.ID(s.id), true); err != nil {
			return "", errors.Join(fmt.Errorf("sandbox %s: %w", s.id, fault(err)), s.d.cfg.Engine.Freeze(ctx, container.ID(s.id), false))
		}
	}
	id, err := s.d.layers.Copy(ctx, up, layer.Meta{Parent: parent, By: by, Progress: &s.copying})
	if !frozen {
		// Whatever the copy's context says.
		if ferr := s.d.cfg.Engine.Freeze(context.WithoutCancel(ctx), container.ID(s.id), false); ferr != nil && !isOfContainer(ferr) {
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
	return s.d.below(ctx, top, holder("merge", s.id), &s.copying)
}

// below is parent for a new layer on top of one, held by by.
func (d *Driver) below(ctx context.Context, top layer.ID, by string, p *layer.Progress) (id layer.ID, release func(), err error) {
	none := func() {}
	if top == "" {
		return "", none, nil
	}
	chain, err := d.layers.Chain(top)
	if err != nil || len(chain.Dirs) < layer.MaxDepth {
		return top, none, err
	}
	if id, err = d.layers.Merge(ctx, top, layer.Meta{By: by, Progress: p}); err != nil {
		return "", none, err
	}
	return id, func() { d.layers.Release(id, by) }, nil
}
