package mcp

import (
	"fmt"
	"net/http"
	"sync"
)

// stream is the answer to a request. What the SDK sends passes through; the first event
// and beats come between.
type stream struct {
	w  http.ResponseWriter
	id string // of the first event; "": there is none

	mu     sync.Mutex
	primed bool // guarded by mu
	began  bool // something was sent; guarded by mu
	muted  bool // nothing more is sent: the client comes back; guarded by mu
}

// Header implements [http.ResponseWriter].
func (s *stream) Header() http.Header { return s.w.Header() }

// WriteHeader implements [http.ResponseWriter].
func (s *stream) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = true
	s.w.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began = true; s.muted {
		return len(b), nil
	}
	return s.w.Write(b)
}

// FlushError is what http.ResponseController calls.
func (s *stream) FlushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return http.NewResponseController(s.w).Flush()
}

// prime sends the event that a client continues from, as the first one. It is called by
// the handler of the call: the SDK has taken the request then.
func (s *stream) prime() {
	if s.id != "" {
		s.comment(fmt.Sprintf("event: prime\nid: %s\nretry: 500\ndata: \n\n", s.id), true)
	}
}

// mute ends what is sent without an answer, if the client knows how to come back for it.
func (s *stream) mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted = s.primed
}

// beat keeps what is between server and client from taking the stream for dead.
func (s *stream) beat() { s.comment(": beat\n\n", false) }

func (s *stream) comment(text string, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.muted || first && (s.began || s.primed) || s.w.Header().Get("Content-Type") != "text/event-stream" {
		return
	}
	s.primed, s.began = true, true
	_, _ = s.w.Write([]byte(text)) // the request ends by itself when the client has left
	_ = http.NewResponseController(s.w).Flush()
}
