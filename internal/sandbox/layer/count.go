package layer

import (
	"context"
	"errors"
	"os"
)

// count finds out how much is in the layers that were sealed: a seal takes the same time
// whatever there is. Each is counted once.
func (s *Store) count(ctx context.Context) error {
	s.mu.Lock()
	var todo []ID
	for id, e := range s.layers {
		if e.From != "" && !e.Counted {
			todo = append(todo, id)
		}
	}
	s.mu.Unlock()
	for _, id := range todo {
		entries, bytes, err := countTree(ctx, s.files(id))
		if errors.Is(err, os.ErrNotExist) {
			continue // dropped meanwhile
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		if e := s.layers[id]; e != nil {
			next := e.Info
			next.Entries, next.Bytes, next.Counted = entries, bytes, true
			if err = writeInfo(s.path(string(id)), &next, next.Synced); err == nil {
				e.Info = next
			}
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
