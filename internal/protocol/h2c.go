package protocol

import (
	"context"
	"net"
	"net/http"
	"time"
)

// connOfH2C is the key of a connection in the contexts of its requests.
type connOfH2C struct{}

// H2C has a server with a handler speak HTTP/2 without TLS as well, by prior knowledge. Until Go
// 1.26.7, net/http ends such a connection when the time for its first header (ReadHeaderTimeout)
// is over, with all that runs on it; so the first request takes that time away.
func H2C(s *http.Server) {
	if s.Protocols == nil {
		s.Protocols = new(http.Protocols)
	}
	s.Protocols.SetUnencryptedHTTP2(true)
	handler, note := s.Handler, s.ConnContext
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if note != nil {
			ctx = note(ctx, c)
		}
		return context.WithValue(ctx, connOfH2C{}, c)
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connOfH2C{}).(net.Conn); ok && r.ProtoMajor == 2 && r.TLS == nil {
			_ = c.SetReadDeadline(time.Time{}) // one that is closed needs none
		}
		handler.ServeHTTP(w, r)
	})
}
