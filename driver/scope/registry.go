package scope

import (
	"fmt"
	"sync"

	"github.com/tend-run/tend/driver"
)

// MaxSandboxes is the most sandboxes of one driver.
const MaxSandboxes = 10_000

// Registry finds the sandboxes of a driver by ID and by name. The zero value is
// empty.
type Registry[B comparable] struct {
	mu     sync.Mutex
	boxes  map[driver.ID]B      // guarded by mu
	byName map[string]driver.ID // guarded by mu
}

// Add takes the name for a sandbox, before anything of it is made: of two
// creations one fails without a trace. driver.ErrExists, driver.ErrLimit.
func (r *Registry[B]) Add(b B, id driver.ID, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.byName[name]; taken {
		return fmt.Errorf("%q: %w", name, driver.ErrExists)
	}
	if len(r.boxes) >= MaxSandboxes {
		return fmt.Errorf("%w: there are %d sandboxes, which is the limit", driver.ErrLimit, MaxSandboxes)
	}
	if r.boxes == nil {
		r.boxes, r.byName = map[driver.ID]B{}, map[string]driver.ID{}
	}
	r.boxes[id], r.byName[name] = b, id
	return nil
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
	b, ok := r.boxes[driver.ID(key)] // IDs win: records of old may have such a name
	if !ok {
		b, ok = r.boxes[r.byName[key]]
	}
	return b, ok
}

// All returns all, in no order.
func (r *Registry[B]) All() []B {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]B, 0, len(r.boxes))
	for _, b := range r.boxes {
		all = append(all, b)
	}
	return all
}

// Remove forgets a sandbox and its name.
func (r *Registry[B]) Remove(id driver.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.boxes, id)
	for name, other := range r.byName {
		if other == id {
			delete(r.byName, name)
		}
	}
}
