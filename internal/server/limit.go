package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// connLimit counts connections. A connection above the limit is accepted, gets the
// reason why it cannot be served, and is closed. Far above the limit connections are
// closed without an answer.
//
// Nobody who may not call takes the places of those who may: some are for the unix socket
// alone, and users who will be refused have few.
type connLimit struct {
	max   int
	mu    sync.Mutex
	conns map[net.Conn]caller // guarded by mu: those that count
	open  [callers]int        // how many there are of each; guarded by mu
}

// caller is what is known of the other end of a connection before its first request.
type caller int

const (
	onSocket caller = iota // of the server's own user or root, on a unix socket
	onTCP                  // may be admitted
	stranger               // of another user, who will not be
	beyond                 // of anybody, above the limit: it takes nobody's place
	callers
)

// most is how many connections there may be of this kind and of those after it.
func (l *connLimit) most(c caller) int {
	switch part := l.max / 8; c {
	case stranger:
		return max(1, part)
	case onTCP:
		return l.max - part
	}
	return l.max
}

// callerOf is the kind of a connection with this context.
func (s *Server) callerOf(ctx context.Context) caller {
	p, known := ctx.Value(peerKey{}).(*peer)
	switch {
	case known && p.unix && p.own():
		return onSocket
	case known && p.unix || !s.admitsAll() && !(known && p.own()):
		return stranger
	}
	return onTCP
}

// slack is how many connections above the limit get an answer at a time.
const slack = 64

// overKey has the limit that a connection is above.
type overKey struct{}

// note counts a new connection.
func (l *connLimit) note(ctx context.Context, c net.Conn, kind caller) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = make(map[net.Conn]caller)
	}
	n, most := 0, l.most(kind)
	for _, open := range l.open[kind:beyond] {
		n += open
	}
	if n >= most {
		kind, ctx = beyond, context.WithValue(ctx, overKey{}, most)
	}
	l.conns[c] = kind
	if l.open[kind]++; l.open[beyond] > slack && kind == beyond {
		c.Close() // the server notices at its first read
	}
	return ctx
}

// state has the form of http.Server.ConnState.
func (l *connLimit) state(c net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		l.mu.Lock()
		defer l.mu.Unlock()
		if kind, ok := l.conns[c]; ok {
			l.open[kind]--
			delete(l.conns, c)
		}
	}
}

// limited answers 503 on connections and requests above the limits.
func (s *Server) limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if most, over := r.Context().Value(overKey{}).(int); over {
			s.metrics.Refused("connections")
			w.Header().Set("Connection", "close")
			refuse(w, http.StatusServiceUnavailable, "unavailable",
				fmt.Sprintf("%d connections are open, which is the limit of this server; "+
					"close some, or use one connection with HTTP/2 for many streams", most))
			return
		}
		defer s.active.Add(-1)
		if s.active.Add(1) > int64(s.limits.Requests) {
			s.metrics.Refused("requests")
			refuse(w, http.StatusServiceUnavailable, "unavailable",
				fmt.Sprintf("%d requests and streams are being served, which is the limit of this server; end some and try again", s.limits.Requests))
			return
		}
		next.ServeHTTP(w, r)
	})
}
