package native

import (
	"context"
	"net/http"
)

// held keeps what Connect flushes, after each message, until nothing more is at hand: what a
// short command says and how it ended then cost its client one read, and not one for each
// fact. Only the handler's own goroutine uses it.
type held struct {
	http.ResponseWriter
	to    http.Flusher
	holds bool
}

type heldKey struct{}

// holding has the streams of some procedures held. They flush before they wait, and end with
// what is left.
func holding(next http.Handler, procedures ...string) http.Handler {
	these := make(map[string]bool, len(procedures))
	for _, p := range procedures {
		these[p] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, ok := w.(http.Flusher)
		if !ok || !these[r.URL.Path] {
			next.ServeHTTP(w, r)
			return
		}
		h := &held{ResponseWriter: w, to: to}
		next.ServeHTTP(h, r.WithContext(context.WithValue(r.Context(), heldKey{}, h)))
	})
}

// Flush implements http.Flusher.
func (h *held) Flush() { h.holds = true }

// Unwrap is for http.ResponseController.
func (h *held) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// flush sends what the stream of a call holds.
func flush(ctx context.Context) {
	if h, ok := ctx.Value(heldKey{}).(*held); ok && h.holds {
		h.holds = false
		h.to.Flush()
	}
}
