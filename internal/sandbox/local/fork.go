package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
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
	var starting sync.WaitGroup // of their start commands
	for i := range results {
		next := rec
		now := time.Now().UTC()
		next.ID = d.newID()
		next.Name, next.Created, next.Updated = "box-"+string(next.ID[:8]), now, now
		next.Deadline = spec.Deadline
		next.Env, next.OverEnv, next.Metadata, next.Notes = maps.Clone(rec.Env), maps.Clone(rec.OverEnv), maps.Clone(rec.Metadata),
			maps.Clone(rec.Notes)
		next.Layer, next.Origin = top, top
		made, err := d.create(ctx, next)
		if err != nil {
			results[i].Err = err
			continue
		}
		results[i].Sandbox = made
		if next.StartCommand == "" && next.ReadyCommand == "" {
			continue
		}
		starting.Go(func() {
			if err := made.startUp(ctx, next.StartCommand, next.ReadyCommand, false); err != nil {
				results[i] = driver.ForkResult{Err: errors.Join(err, made.Destroy(ctx))}
			}
		})
	}
	starting.Wait()
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
