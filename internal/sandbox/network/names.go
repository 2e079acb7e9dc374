package network

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxNamed bounds the addresses that are known by name, for a sandbox; maxNames the
	// names of one.
	maxNamed = 4096
	maxNames = 16
	// leastNamed is how long an answer counts at least: programs keep addresses
	// for longer than they are told to.
	leastNamed = 10 * time.Minute
	mostNamed  = 24 * time.Hour
)

// names is what the addresses were that a sandbox got for the names it looked up.
type names struct {
	mu     sync.Mutex
	byAddr map[netip.Addr][]known // guarded by mu
}

type known struct {
	name  string
	until time.Time
}

// add notes an answer.
func (n *names) add(a netip.Addr, name string, ttl time.Duration, now time.Time) {
	a = a.Unmap()
	until := now.Add(min(max(ttl, leastNamed), mostNamed))
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byAddr == nil {
		n.byAddr = map[netip.Addr][]known{}
	}
	list, there := n.byAddr[a]
	if !there && len(n.byAddr) >= maxNamed {
		n.makeRoom(now)
	}
	list = slices.DeleteFunc(list, func(k known) bool { return k.name == name || now.After(k.until) })
	if len(list) >= maxNames {
		list = list[1:] // the oldest
	}
	n.byAddr[a] = append(list, known{name, until})
}

// makeRoom forgets what is over, and else some address. n.mu is held.
func (n *names) makeRoom(now time.Time) {
	for a, list := range n.byAddr {
		if list = slices.DeleteFunc(list, func(k known) bool { return now.After(k.until) }); len(list) == 0 {
			delete(n.byAddr, a)
		} else {
			n.byAddr[a] = list
		}
	}
	for a := range n.byAddr {
		if len(n.byAddr) < maxNamed {
			return
		}
		delete(n.byAddr, a)
	}
}

// of returns the names of an address.
func (n *names) of(a netip.Addr, now time.Time) (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.byAddr[a.Unmap()] {
		if now.Before(k.until) {
			out = append(out, k.name)
		}
	}
	return out
}
