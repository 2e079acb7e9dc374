package page

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/protocol"
)

const (
	// codeLifetime is how long a code opens the page.
	codeLifetime = time.Minute
	// maxCodes wait to be used; a new one makes the oldest void.
	maxCodes = 64
)

// codes are those that log in once. They are in memory alone.
type codes struct {
	now func() time.Time

	mu  sync.Mutex
	all []code // the oldest first
}

type code struct {
	text  protocol.Token
	reads bool // it logs in to read alone
	until time.Time
}

// add makes a code.
func (c *codes) add(reads bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.all) - maxCodes + 1; n > 0 {
		c.all = c.all[n:]
	}
	text := rand.Text()
	c.all = append(c.all, code{protocol.Token(text), reads, c.now().Add(codeLifetime)})
	return text
}

// endReaders makes all codes void that log in to read alone.
func (c *codes) endReaders() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(v code) bool { return v.reads })
}

// use reports whether a code logs in, which it does once, and whether to read alone.
func (c *codes) use(shown string) (ok, reads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.all = slices.DeleteFunc(c.all, func(v code) bool { return !now.Before(v.until) })
	n := slices.IndexFunc(c.all, func(v code) bool { return v.text.Matches(shown) })
	if n < 0 {
		return false, false
	}
	reads = c.all[n].reads
	c.all = slices.Delete(c.all, n, n+1)
	return true, reads
}
