package distant

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// maxStrangers bounds the callers that have not shown the key yet. When one more
// comes, another one is dropped.
const maxStrangers = 256

// strangers are the callers that have not shown the key yet. A flood of callers must
// not keep the owner of the key out. So the server drops one of the callers that are
// at the earliest step of the handshake: the owner's client continues at once, and only
// has to be quicker than as many callers as there are places. Among these callers it
// drops the oldest one of the address that has the most. That is not the owner's
// address unless the flood comes from there.
type strangers struct {
	mu  sync.Mutex
	all []*stranger // guarded by mu; oldest first
}

// stranger is the connection of a caller.
type stranger struct {
	net.Conn
	from string       // its address, without the port
	come atomic.Int32 // steps of the handshake
}

// Progressed implements [secure.Progress].
func (s *stranger) Progressed() { s.come.Add(1) }

// enter counts a caller, and drops one of too many.
func (l *strangers) enter(nc net.Conn) *stranger {
	s := &stranger{Conn: nc, from: nc.RemoteAddr().String()}
	if host, _, err := net.SplitHostPort(s.from); err == nil {
		s.from = host
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= maxStrangers {
		i := l.least()
		l.all[i].Close()
		l.all = slices.Delete(l.all, i, i+1)
	}
	l.all = append(l.all, s)
	return s
}

// least returns the caller to drop. l.mu is held.
func (l *strangers) least() int {
	from := map[string]int{}
	come := make([]int32, len(l.all))
	for i, s := range l.all {
		from[s.from]++
		come[i] = s.come.Load()
	}
	best := 0
	for i, s := range l.all {
		if come[i] < come[best] || come[i] == come[best] && from[s.from] > from[l.all[best].from] {
			best = i
		}
	}
	return best
}

// leave takes a caller off the list: it has shown the key, or has left.
func (l *strangers) leave(nc net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(s *stranger) bool { return s == nc })
}

func (l *strangers) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		s.Close()
	}
}
