//go:build linux

package client

import (
	"sync"

	"github.com/tend-run/tend/internal/core/container"
)

// home is a user's in a container.
type home struct {
	container container.ID
	uid       int
	dir       string
}

// homes are those that their users could enter when they were looked at last: most starts
// in a container need not look again. To look takes a thread, the user's rights for it and back.
type homes struct {
	mu  sync.Mutex
	all map[home]bool // guarded by mu
}

// mostHomes are kept.
const mostHomes = 4096

func (hs *homes) have(h *home) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.all[*h]
}

func (hs *homes) add(h *home) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.all == nil || len(hs.all) >= mostHomes {
		hs.all = map[home]bool{}
	}
	hs.all[*h] = true
}

func (hs *homes) forget(h *home) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.all, *h)
}
