package files

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// A share is a sandbox's part of what the kernel has once for all that the daemon watches: inotify
// instances and watches of its user (fs.inotify.max_user_instances, max_user_watches). A sandbox
// has an eighth, and all sandboxes together have half: the rest is the machine's and the daemon's.
type share struct{ used int }

// counted is one of the two resources.
type counted struct {
	name string // of the sysctl
	rest int    // its value where it cannot be read

	mu   sync.Mutex
	most int // of the kernel; 0: not read yet; guarded by mu
	all  int // of all shares; guarded by mu
}

var (
	instances = &counted{name: "max_user_instances", rest: 128}
	watches   = &counted{name: "max_user_watches", rest: 8192}
)

// acquire takes one for a sandbox; false: it has none left. This machine has no share: nil.
func (c *counted) acquire(s *share) bool {
	if s == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most == 0 {
		c.most = c.rest
		b, err := os.ReadFile("/proc/sys/fs/inotify/" + c.name)
		if n, perr := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && perr == nil && n > 0 {
			c.most = n
		}
	}
	if s.used >= max(c.most/8, 1) || c.all >= max(c.most/2, 1) {
		return false
	}
	s.used++
	c.all++
	return true
}

func (c *counted) give(s *share, n int) {
	if s == nil {
		return
	}
	c.mu.Lock()
	s.used -= n
	c.all -= n
	c.mu.Unlock()
}
