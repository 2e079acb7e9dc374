package sandboxrecord

import (
	"fmt"
	"sync"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

const (
	// MaxSandboxes is the most sandboxes of one driver.
	MaxSandboxes = 10_000
	// MaxTexts bounds the environments and metadata of all sandboxes, which are in memory, in
	// bytes. One that has no more than smallTexts has a place all the same: all of them do.
	MaxTexts   = 256 << 20
	smallTexts = 16 << 10
)

// Registry finds the sandboxes of a driver by ID and by name. The zero value is
// empty.
type Registry[B comparable] struct {
	mu        sync.Mutex
	sandboxes map[driver.ID]B      // guarded by mu
	byName    map[string]driver.ID // guarded by mu
	texts     map[driver.ID]int    // bytes of those that have more than smallTexts; guarded by mu
	all       int                  // the sum of texts; guarded by mu
}

// Add takes the name for a sandbox, before anything of it is made: of two
// creations one fails without a trace. driver.ErrExists, driver.ErrLimit.
func (r *Registry[B]) Add(b B, rec *Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.byName[rec.Name]; !taken {
		if len(r.sandboxes) >= MaxSandboxes {
			return fmt.Errorf("%w: there are %d sandboxes, which is the limit", driver.ErrLimit, MaxSandboxes)
		}
		if err := r.room(rec); err != nil {
			return err
		}
	}
	return r.add(b, rec)
}

// Restore is Add for a sandbox that there was when the limits were others. driver.ErrExists.
func (r *Registry[B]) Restore(b B, rec *Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(b, rec)
}

func (r *Registry[B]) add(b B, rec *Record) error {
	if _, taken := r.byName[rec.Name]; taken {
		return fmt.Errorf("%q: %w", rec.Name, driver.ErrExists)
	}
	if r.sandboxes == nil {
		r.sandboxes, r.byName, r.texts = map[driver.ID]B{}, map[string]driver.ID{}, map[driver.ID]int{}
	}
	r.sandboxes[rec.ID], r.byName[rec.Name] = b, rec.ID
	r.count(rec)
	return nil
}

// room reports whether there is room for the texts of a sandbox in place of those that it has.
func (r *Registry[B]) room(rec *Record) error {
	size, had := rec.texts(), r.texts[rec.ID]
	if size <= max(smallTexts, had) || r.all-had+size <= MaxTexts {
		return nil
	}
	return fmt.Errorf("%w: its environment and metadata have %d bytes, and those of all sandboxes would have more than %d MiB, "+
		"which is the limit; destroy others, or give it no more than %d KiB", driver.ErrLimit, size, MaxTexts>>20, smallTexts>>10)
}

// count takes in how much the texts of a sandbox are.
func (r *Registry[B]) count(rec *Record) {
	r.all -= r.texts[rec.ID]
	delete(r.texts, rec.ID)
	if size := rec.texts(); size > smallTexts {
		r.texts[rec.ID] = size
		r.all += size
	}
}

// Room refuses what a change would make of a sandbox. driver.ErrLimit.
func (r *Registry[B]) Room(rec *Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.room(rec)
}

// Changed is told what a sandbox has become.
func (r *Registry[B]) Changed(rec *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.sandboxes[rec.ID]; there {
		r.count(rec)
	}
}

// Rename gives a sandbox another name. driver.ErrExists.
func (r *Registry[B]) Rename(id driver.ID, from, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other, taken := r.byName[to]; taken && other != id {
		return fmt.Errorf("%q: %w", to, driver.ErrExists)
	}
	delete(r.byName, from)
	r.byName[to] = id
	return nil
}

// Get finds a sandbox by its ID or name.
func (r *Registry[B]) Get(key string) (B, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.sandboxes[driver.ID(key)] // IDs win: records of old may have such a name
	if !ok {
		b, ok = r.sandboxes[r.byName[key]]
	}
	return b, ok
}

// All returns all, in no order.
func (r *Registry[B]) All() []B {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]B, 0, len(r.sandboxes))
	for _, b := range r.sandboxes {
		all = append(all, b)
	}
	return all
}

// Remove forgets a sandbox and its name.
func (r *Registry[B]) Remove(id driver.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, id)
	r.all -= r.texts[id]
	delete(r.texts, id)
	for name, other := range r.byName {
		if other == id {
			delete(r.byName, name)
		}
	}
}
