package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/process"
)

// probes is the part of the server itself.
type probes struct{ s *Server }

// Name implements module.Part.
func (probes) Name() string { return "probe" }

// Routes implements module.Router.
func (p probes) Routes() []module.Route {
	return []module.Route{
		{Pattern: "GET /-/healthz", Handler: http.HandlerFunc(healthz), Access: module.Open},
		{Pattern: "GET /-/readyz", Handler: http.HandlerFunc(p.s.readyz), Access: module.Open},
		{Pattern: "GET /-/metrics", Handler: p.s.metrics.Handler()},
	}
}

// readyTimeout bounds how long a readiness probe waits for the keeper.
const readyTimeout = 2 * time.Second

// healthz: this process serves HTTP.
func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	io.WriteString(w, "ok\n")
}

// pinger is a Manager whose processes another role holds, which may not answer.
type pinger interface{ Ping(context.Context) error }

// readyz: processes can be started and read. Asking for a process that cannot
// exist costs next to nothing; the keeper is asked whether it is there. Nothing but
// that is reported: the probe is open to all.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	_, err := s.cfg.Manager.Get(ctx, process.Selector{ID: "readyz-no-such-process"})
	w.Header().Set("Cache-Control", "no-store")
	if p, ok := s.cfg.Manager.(pinger); ok && p.Ping(ctx) != nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not ready: the keeper does not answer", http.StatusServiceUnavailable)
		return
	}
	if err != nil && !errors.Is(err, process.ErrNotFound) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ready\n")
}
