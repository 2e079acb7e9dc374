package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
)

// Pause implements driver.Pauser.
func (d *Driver) Pause(ctx context.Context, id driver.ID, spec driver.PauseSpec) error {
	s, err := d.get(ctx, string(id))
	if err != nil {
		return err
	}
	return s.pause(ctx, spec.Memory)
}

// Resume implements driver.Pauser.
func (d *Driver) Resume(ctx context.Context, id driver.ID) error {
	s, err := d.get(ctx, string(id))
	if err != nil {
		return err
	}
	s.mu.Lock()
	err = s.usable()
	s.mu.Unlock()
	if errors.Is(err, driver.ErrStopped) {
		return err
	}
	return s.Start(ctx)
}

func (s *sandbox) pause(ctx context.Context, memory bool) error {
	ctx = context.WithoutCancel(ctx)
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	err := s.usable()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if memory {
		if err := s.d.needs(container.LayerFreeze, "memory"); err != nil {
			return err
		}
	}
	// First the state: what is started after this is refused, and what starts now
	// stands still with all else.
	mark := func(at time.Time) error {
		return s.change(!memory, func(r *record) error {
			r.PausedAt, r.Memory = at, memory && !at.IsZero()
			return nil
		})
	}
	if err := mark(time.Now().UTC()); err != nil {
		return err
	}
	if !memory {
		if err := s.end(ctx); err != nil {
			return err
		}
		err = sandboxrecord.End(ctx, s.d.cfg.Manager, s.id, false)
	} else {
		var release func()
		if release, err = s.holdStarts(); err != nil {
			return errors.Join(err, mark(time.Time{}))
		}
		release()
		if err = s.d.cfg.Engine.Freeze(ctx, container.ID(s.id), true); err != nil {
			err = errors.Join(fmt.Errorf("pause sandbox %s: %w", s.id, fault(err)), s.d.cfg.Engine.Freeze(ctx, container.ID(s.id), false),
				mark(time.Time{}))
		}
	}
	if err == nil {
		s.told(driver.EventPaused, nil)
		s.d.log.Info("sandbox paused", slog.String("id", string(s.id)), slog.Bool("memory", memory))
	}
	return err
}

// thaw lets a frozen container go on. s.life is held.
func (s *sandbox) thaw(ctx context.Context) error {
	if err := s.d.cfg.Engine.Freeze(ctx, container.ID(s.id), false); err != nil {
		if !errors.Is(err, container.ErrEnded) && !errors.Is(err, container.ErrNotFound) {
			return fmt.Errorf("resume sandbox %s: %w", s.id, fault(err))
		}
		// It ended while it stood still: its files stay.
		if err := s.change(true, func(r *record) error { r.Memory = false; return nil }); err != nil {
			return err
		}
		return s.restart(ctx)
	}
	if err := s.change(false, func(r *record) error { r.ready(); return nil }); err != nil {
		return err
	}
	s.d.clock.Set(s.deadline())
	s.told(driver.EventResumed, nil)
	s.d.log.Info("sandbox resumed", slog.String("id", string(s.id)))
	return nil
}

// needs reports a layer that is missing, by the field that asks for it.
func (d *Driver) needs(layer, field string) error {
	d.joining.Lock()
	defer d.joining.Unlock()
	if slices.Contains(d.can.Layers, layer) {
		return nil
	}
	reason := "this machine has no " + layer
	for _, m := range d.can.Missing {
		if m.Layer == layer {
			reason = m.Reason
		}
	}
	return &driver.UnsupportedError{Field: field, Reason: reason}
}
