package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/internal/files"
)

// Sweep removes the layers that are not needed, those with a key only after they were
// unused for the time cache. It syncs layers that are not on the disk yet, and counts
// the bytes of sealed ones. All holds must be taken before the first Sweep.
func (s *Store) Sweep(ctx context.Context, cache time.Duration) error {
	for s.drop(time.Now().Add(-cache)) {
	}
	return errors.Join(s.empty(ctx), s.sync(ctx), s.count(ctx))
}

// Empty reports whether a Sweep has nothing to do, now or later, until Changed reports
// something.
func (s *Store) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.layers) > 0 {
		return false
	}
	left, err := os.ReadDir(s.path(trashName))
	return err == nil && len(left) == 0
}

// Changed has a value when a layer was made, or something was thrown away, since the
// last one was taken.
func (s *Store) Changed() <-chan struct{} { return s.changed }

func (s *Store) change() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// drop moves layers to the trash; true: there may be more now.
func (s *Store) drop(before time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := false
	for id, e := range s.layers {
		if len(e.holds) > 0 || e.children > 0 || e.Key != "" && e.used.After(before) {
			continue
		}
		if s.discard(string(id)) != nil {
			continue // the next sweep tries it again
		}
		delete(s.layers, id)
		if p := s.layers[e.Parent]; p != nil {
			p.children--
		}
		dropped = true
	}
	return dropped
}

// discard moves something of the store's to the trash, however much is in it.
func (s *Store) discard(name string) error {
	err := os.Rename(s.path(name), filepath.Join(s.path(trashName), string(newID())))
	s.change()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// empty removes what is in the trash.
func (s *Store) empty(ctx context.Context) error {
	names, err := os.ReadDir(s.path(trashName))
	if err != nil || len(names) == 0 {
		return err
	}
	// A program inside may have nested directories deeper than a path can say.
	return below(s.path(trashName), func(trash files.FS) error {
		for _, n := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			remove := func() error {
				return trash.Do(ctx, func(a *files.Actor) error { return a.Remove("/" + n.Name()) })
			}
			err := remove()
			if err != nil && os.Geteuid() != 0 { // programs may have closed directories to a daemon that is not root
				err = errors.Join(openTree(s.path(trashName), n.Name()), remove())
			}
			if err != nil {
				return fmt.Errorf("remove a layer: %w", err)
			}
		}
		return nil
	})
}

// sync forces the layers of this boot to the disk.
func (s *Store) sync(ctx context.Context) error {
	s.mu.Lock()
	var fresh []Info
	for _, e := range s.layers {
		if !e.Synced && !e.Suspect() {
			fresh = append(fresh, e.Info)
		}
	}
	s.mu.Unlock()
	if len(fresh) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	if err := syncAll(s.dir); err != nil {
		return err
	}
	for _, info := range fresh {
		info.Synced = true
		err := writeInfo(s.path(string(info.ID)), &info, true)
		if errors.Is(err, os.ErrNotExist) {
			continue // dropped meanwhile
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		if e := s.layers[info.ID]; e != nil {
			e.Synced = true
		}
		s.mu.Unlock()
	}
	return nil
}
