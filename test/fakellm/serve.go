package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

type server struct {
	mu       sync.Mutex
	script   Script
	vars     map[string]string
	seen     map[string]string // what was captured
	key      string
	strict   bool
	logw     io.Writer
	next     int // mode sequence
	used     []bool
	faultPos []int // per turn: faults spent
	faultHit []int // per turn: times the current fault has been spent
	requests int
	calls    int
	failures []string
	usage    Usage
}

func (s *server) reset() {
	n := len(s.script.Turns)
	s.next, s.requests, s.calls, s.failures, s.usage = 0, 0, 0, nil, Usage{}
	s.used, s.faultPos, s.faultHit = make([]bool, n), make([]int, n), make([]int, n)
	s.seen = map[string]string{}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch p := r.URL.Path; {
	case p == "/__state":
		s.state(w)
	case p == "/__reset" && r.Method == http.MethodPost:
		s.mu.Lock()
		s.reset()
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(p, "/messages/count_tokens") && r.Method == http.MethodPost:
		b, _ := io.ReadAll(r.Body)
		writeJSON(w, 200, map[string]int{"input_tokens": len(b) / 4})
	case strings.HasSuffix(p, "/messages") && r.Method == http.MethodPost:
		s.answer(w, r, anthropicFace{})
	case strings.HasSuffix(p, "/chat/completions") && r.Method == http.MethodPost:
		s.answer(w, r, openAIFace{})
	default:
		writeErr(w, &apiErr{404, "not_found_error", r.Method + " " + p}, "")
	}
}

func (s *server) state(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := 0
	if s.script.Mode == "sequence" {
		left = max(0, len(s.script.Turns)-s.next)
	} else {
		for i, u := range s.used {
			if !u && !s.script.Turns[i].Repeat {
				left++
			}
		}
	}
	f := s.failures
	if f == nil {
		f = []string{}
	}
	writeJSON(w, 200, map[string]any{"requests": s.requests, "turns_answered": s.calls, "turns_left": left, "failures": f, "usage": s.usage})
}

// asked is what a request says, in whichever protocol.
type asked struct {
	model, system, last string // last: the text of the last user message, results of tools included
	tools               []string
	stream              bool
	usage               bool // openAIFace: a chunk with the usage is wanted
}

// face is one protocol. Its replies are those of the script.
type face interface {
	check(s *server, r *http.Request, body []byte) (*asked, *apiErr)
	whole(m *reply) map[string]any
	events(m *reply, q *asked) []string // each as it is sent
	broken() string                     // the event of an error in the middle of a stream
	refuse(w http.ResponseWriter, e *apiErr, retryAfter string)
	garbage() string
}

func (s *server) answer(w http.ResponseWriter, r *http.Request, face face) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return
	}
	s.mu.Lock()
	s.requests++
	n := s.requests
	s.mu.Unlock()
	rec := map[string]any{"n": n, "time": time.Now().UTC().Format(time.RFC3339Nano), "path": r.URL.Path,
		"anthropic_version": r.Header.Get("anthropic-version"), "key_tail": tail(apiKey(r)),
		"retry_count": r.Header.Get("x-stainless-retry-count"), "body": json.RawMessage(jsonOr(body))}
	outcome := func(turn int, what string) {
		if turn >= 0 {
			rec["turn"], rec["turn_name"] = turn, s.script.Turns[turn].Name
		}
		rec["outcome"] = what
		line, _ := json.Marshal(rec)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.logw.Write(append(line, '\n'))
	}
	req, e := face.check(s, r, body)
	if e != nil {
		s.fail(fmt.Sprintf("request %d: %v", n, e))
		outcome(-1, "refused: "+e.Error())
		face.refuse(w, e, "")
		return
	}
	ti, e := s.pick(req, body)
	if e != nil {
		s.fail(fmt.Sprintf("request %d: %v", n, e))
		outcome(-1, "no turn: "+e.Error())
		face.refuse(w, e, "")
		return
	}
	var t Turn
	if ti < 0 { // on_exhausted = end_turn
		t = Turn{Name: "(exhausted)", Reply: []Block{{Text: "Nothing more to do."}}}
	} else {
		t = s.script.Turns[ti]
	}
	f := s.fault(ti, t)
	vars, e := s.bind(t, req.last)
	if e != nil {
		s.fail(fmt.Sprintf("request %d: %v", n, e))
		outcome(ti, e.Error())
		face.refuse(w, e, "")
		return
	}
	what := "answered"
	if f != nil {
		what = "fault " + f.Kind
		switch f.Kind {
		case "status", "rate_limit", "overloaded", "server_error":
			outcome(ti, what)
			face.refuse(w, f.err(), f.RetryAfter)
			return
		case "drop":
			outcome(ti, what)
			panic(http.ErrAbortHandler)
		case "garbage":
			outcome(ti, what)
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, face.garbage())
			return
		case "hang":
			d := time.Duration(f.DelayMS) * time.Millisecond
			if d == 0 {
				d = time.Minute
			}
			outcome(ti, what)
			select {
			case <-time.After(d):
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler)
		}
	}
	msg := build(t, vars, req.model, n, len(body))
	// outcome and the turn's advance come before the last byte, so that a
	// client that asks at once for the next turn or for /__state sees them.
	done := func() {
		outcome(ti, what)
		if f == nil || f.Kind == "slow" {
			s.advance(ti, msg)
		}
	}
	w.Header().Set("request-id", msg.reqID)
	if req.stream {
		stream(w, r, face.events(msg, req), face.broken(), f, done)
		return
	}
	if f != nil && (f.Kind == "cut" || f.Kind == "truncate" || f.Kind == "stream_error") {
		done()
		b, _ := json.Marshal(face.whole(msg))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		w.Write(b[:len(b)/2])
		panic(http.ErrAbortHandler)
	}
	if f != nil && f.Kind == "slow" {
		pause(r, f.DelayMS)
	}
	done()
	writeJSON(w, 200, face.whole(msg))
}

// err is the answer that a fault stands for.
func (f *Fault) err() *apiErr {
	ae := &apiErr{f.Status, "api_error", f.Message}
	switch {
	case f.Kind == "rate_limit" || f.Status == 429:
		ae.status, ae.kind = 429, "rate_limit_error"
	case f.Kind == "overloaded" || f.Status == 529:
		ae.status, ae.kind = 529, "overloaded_error"
	case f.Status == 401:
		ae.kind = "authentication_error"
	case f.Status == 403:
		ae.kind = "permission_error"
	case f.Status == 400 || f.Status == 413:
		ae.kind = "invalid_request_error"
	case f.Kind == "server_error" || f.Status == 0:
		ae.status = 500
	}
	if ae.msg == "" {
		ae.msg = "injected " + f.Kind
	}
	return ae
}

func (s *server) fail(m string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, m)
}

func tail(s string) string {
	if len(s) <= 4 {
		return s
	}
	return s[len(s)-4:]
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, _ := json.Marshal(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}

func writeErr(w http.ResponseWriter, e *apiErr, retryAfter string) {
	if retryAfter != "" {
		w.Header().Set("retry-after", retryAfter)
	}
	writeJSON(w, e.status, map[string]any{"type": "error", "error": map[string]string{"type": e.kind, "message": e.msg}, "request_id": "req_fake"})
}
