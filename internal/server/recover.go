package server

import (
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
)

// recovered ends one request on a panic, and nothing else.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			switch {
			case p == nil:
				return
			case p == http.ErrAbortHandler: // a deliberate end, known to net/http
				panic(p)
			}
			s.metrics.Panicked()
			s.log.Error("request panicked", slog.String("path", r.URL.Path), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			// The answer may have begun, so nothing can be added to it: cutting
			// it off shows the client that it is not whole.
			panic(http.ErrAbortHandler)
		}()
		next.ServeHTTP(w, r)
	})
}

// counted counts requests by the part that serves them, and says that there are some.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Used != nil {
			s.cfg.Used()
			defer s.cfg.Used()
		}
		if name := s.routes.of(r).name; name != "" {
			defer s.metrics.Requested(name)()
		}
		next.ServeHTTP(w, r)
	})
}

// errorLog takes the messages of net/http itself. They are about broken connections
// and are logged at the debug level.
type errorLog struct{ log *slog.Logger }

func (e errorLog) Write(b []byte) (int, error) {
	e.log.Debug("http", slog.String("text", strings.TrimSpace(string(b))))
	return len(b), nil
}

// widenStack grows a request's stack once to what most requests need, while there is
// little on it to move. Doubling it again and again as the calls go deeper was a
// tenth of the cost of a short request.
//
//go:noinline
func widenStack() {
	var b [6 << 10]byte // makes 16 KiB of it
	runtime.KeepAlive(&b)
}
