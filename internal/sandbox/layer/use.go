package layer

import (
	"fmt"
	"strings"
	"time"
)

// What is known of layers, and who holds them.

// Chain is a layer with all below it.
type Chain struct {
	Dirs  []string // of their files, topmost first
	Whole bool     // nothing of the machine is below the last
}

// Chain returns the directories that a sandbox is stacked from.
func (s *Store) Chain(id ID) (Chain, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var c Chain
	for id != "" {
		e := s.layers[id]
		if e == nil {
			return Chain{}, fmt.Errorf("%.40q: %w", string(id), ErrNotFound)
		}
		c.Dirs = append(c.Dirs, s.files(id))
		c.Whole = e.Whole
		e.used = time.Now()
		id = e.Parent
	}
	return c, nil
}

// SetKey gives a layer a key, by which Find finds it from now on.
func (s *Store) SetKey(id ID, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.layers[id]
	if e == nil {
		return fmt.Errorf("%.40q: %w", string(id), ErrNotFound)
	}
	next := e.Info
	next.Key = key
	if err := writeInfo(s.path(string(id)), &next, false); err != nil {
		return err
	}
	e.Key = key
	return nil
}

// Below reports whether a layer is another one, or below it. Nothing is below "".
func (s *Store) Below(top, id ID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if top != "" && s.layers[top] == nil {
		return false, fmt.Errorf("%.40q: %w", string(top), ErrNotFound)
	}
	return s.below(top, id), nil
}

// below is Below. mu is held.
func (s *Store) below(top, id ID) bool {
	for e := s.layers[top]; e != nil; e = s.layers[e.Parent] {
		if e.ID == id {
			return true
		}
	}
	return false
}

// Get returns the state of a layer.
func (s *Store) Get(id ID) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.layers[id]; e != nil {
		return e.Info, nil
	}
	return Info{}, fmt.Errorf("%.40q: %w", string(id), ErrNotFound)
}

// Find returns the newest layer with a key, and holds it.
func (s *Store) Find(key, by string) (ID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *entry
	for _, e := range s.layers {
		if key != "" && e.Key == key && !e.Suspect() && (last == nil || e.Created.After(last.Created)) {
			last = e
		}
	}
	if last == nil {
		return "", false
	}
	last.holds[by], last.used = struct{}{}, time.Now()
	return last.ID, true
}

// Hold keeps a layer for by until Release. Repeating it changes nothing.
func (s *Store) Hold(id ID, by string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.layers[id]
	if e == nil {
		return fmt.Errorf("%.40q: %w", string(id), ErrNotFound)
	}
	e.holds[by] = struct{}{}
	return nil
}

// Used reports whether a layer, or one on top of it, has a hold that counts.
func (s *Store) Used(id ID, counts func(holder string) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.layers {
		for by := range e.holds {
			if counts(by) && s.below(e.ID, id) {
				return true
			}
		}
	}
	return false
}

// Bytes is how many bytes the layers have whose keys begin so.
func (s *Store) Bytes(key string) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.layers {
		if strings.HasPrefix(e.Key, key) {
			n += e.Bytes
		}
	}
	return n
}

// Expire has the next Sweep remove a layer and those below it, as far as nobody needs them,
// although they have keys and were used just now.
func (s *Store) Expire(id ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.layers[id]; e != nil; e = s.layers[e.Parent] {
		e.used = time.Time{}
	}
	s.change()
}

// Release ends a hold. The next Sweep removes layers without holds.
func (s *Store) Release(id ID, by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.layers[id]; e != nil {
		delete(e.holds, by)
		e.used = time.Now()
	}
}
