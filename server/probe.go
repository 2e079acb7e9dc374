package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tend-run/tend/process"
)

// readyTimeout bounds how long a readiness probe waits for the keeper.
const readyTimeout = 2 * time.Second

// healthz: this process serves HTTP.
func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	io.WriteString(w, "ok\n")
}

// readyz: processes can be started and read. Asking for a process that cannot
// exist costs next to nothing and needs the whole way to the keeper.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	_, err := s.cfg.Manager.Get(ctx, process.Selector{ID: "readyz-no-such-process"})
	w.Header().Set("Cache-Control", "no-store")
	if err != nil && !errors.Is(err, process.ErrNotFound) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ready\n")
}
