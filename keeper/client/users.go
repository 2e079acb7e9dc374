//go:build linux

package client

import (
	"os"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/account"
)

// maxKnown bounds the accounts that are remembered: numbers need no entry in
// /etc/passwd, so there are billions of them.
const maxKnown = 1024

// users looks accounts up and remembers them while /etc/passwd and /etc/group
// stay as they are.
type users struct {
	mu    sync.Mutex
	stamp [2]time.Time                // guarded by mu
	known map[string]*account.Account // guarded by mu
}

// find returns the account for a name, "uid" or "uid:gid"; "" is the user that
// tend runs as.
func (u *users) find(name string) (*account.Account, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var stamp [2]time.Time
	for i, path := range []string{"/etc/passwd", "/etc/group"} {
		if fi, err := os.Stat(path); err == nil {
			stamp[i] = fi.ModTime()
		}
	}
	if u.known == nil || stamp != u.stamp {
		u.known, u.stamp = map[string]*account.Account{}, stamp
	}
	if a := u.known[name]; a != nil {
		return a, nil
	}
	a, err := account.Lookup(name)
	if err != nil {
		return nil, err
	}
	if len(u.known) >= maxKnown {
		clear(u.known)
	}
	u.known[name] = a
	return a, nil
}
