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
type connLimit struct {
	max   int
	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu: those that count
}

// slack is how many connections above the limit get an answer at a time.
const slack = 64

type overKey struct{}

// note counts a new connection.
func (l *connLimit) note(ctx context.Context, c net.Conn) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = make(map[net.Conn]struct{})
	}
	l.conns[c] = struct{}{}
	switch n := len(l.conns); {
	case n > l.max+slack:
		c.Close() // the server notices at its first read
		fallthrough
	case n > l.max:
		return context.WithValue(ctx, overKey{}, true)
	}
	return ctx
}

// state has the form of http.Server.ConnState.
func (l *connLimit) state(c net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
	}
}

// limited answers 503 on connections and requests above the limits.
func (s *Server) limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(overKey{}) != nil {
			s.metrics.Refused("connections")
			w.Header().Set("Connection", "close")
			refuse(w, http.StatusServiceUnavailable, "unavailable",
				fmt.Sprintf("%d connections are open, which is the limit of this server; close some, or use one connection with HTTP/2 for many streams", s.limits.Connections))
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
