package local

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
)

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
		next.ID = d.newID()
		next.Name, next.Created, next.Updated = "box-"+string(next.ID[:8]), now, now
		next.Deadline = spec.Deadline
		next.Env, next.OverEnv, next.Metadata, next.Notes = maps.Clone(rec.Env), maps.Clone(rec.OverEnv), maps.Clone(rec.Metadata),
			maps.Clone(rec.Notes)
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
