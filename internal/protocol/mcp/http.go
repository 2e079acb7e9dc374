package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/process"
)

// Headers of the protocol.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerLast    = "Last-Event-Id"
)

const (
	// MaxBody bounds one message of a client, in bytes.
	MaxBody = 4 << 20
	// maxSession bounds the ID of a session, and of a request, in bytes.
	maxSession = 256
	// heldOfBody is how many bytes a call under way holds for each byte of its message:
	// the message, a copy of it and of its arguments, and the arguments.
	heldOfBody = 4
)

// Versions of the protocol in which something about streams changed.
const (
	versionResumes = "2025-11-25" // a stream begins with an event that has an id
	versionNew     = "2026-07-28" // no sessions, no streams that are resumed
)

// toolset is the tools as servers of the SDK, made when they are first asked for.
type toolset struct {
	make func(listen bool) *sdk.Server
	once sync.Once
	old  *sdk.Server
	new  *sdk.Server // for clients that can be told of changes
	h    *sdk.StreamableHTTPHandler
}

func (s *toolset) handler() http.Handler {
	s.once.Do(func() {
		s.old, s.new = s.make(false), s.make(true)
		s.h = sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
			if r.Header.Get(headerVersion) >= versionNew {
				return s.new
			}
			return s.old
		}, &sdk.StreamableHTTPOptions{
			Stateless: true, MaxRequestBodyBytes: MaxBody,
			DisableLocalhostProtection: true, // package server has its own, which knows unix sockets and domains
		})
	})
	return s.h
}

func (f *Face) serve(w http.ResponseWriter, r *http.Request) {
	p, err := f.admit(r)
	if err != nil {
		fail(w, nil, err)
		return
	}
	if session := r.Header.Get(headerSession); len(session) > maxSession {
		fail(w, nil, &refusal{http.StatusBadRequest, fmt.Sprintf("%s has %d bytes; the limit is %d", headerSession, len(session), maxSession)})
		return
	}
	switch r.Method {
	case http.MethodPost:
		f.post(w, r, p)
	case http.MethodGet:
		f.resume(w, r, p)
	case http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		fail(w, nil, &refusal{http.StatusMethodNotAllowed, "POST a message, or GET with Last-Event-ID"})
	}
}

// message is what is looked at of a message before the SDK reads it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

func (f *Face) post(w http.ResponseWriter, r *http.Request, p *place) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		if _, big := errors.AsType[*http.MaxBytesError](err); big {
			err = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the message has more than %d bytes", MaxBody)}
		}
		fail(w, nil, err)
		return
	}
	m, err := peekMessage(body)
	if err != nil {
		fail(w, nil, err)
		return
	}
	key := r.Header.Get(HeaderKey)
	switch {
	case len(key) > maxKey:
		fail(w, m.ID, &refusal{http.StatusBadRequest, fmt.Sprintf("%s has %d bytes; the limit is %d", HeaderKey, len(key), maxKey)})
		return
	case key == "":
		key = rand.Text()
	}
	switch m.Method {
	case "notifications/cancelled":
		f.cancelled(r, p, m)
		w.WriteHeader(http.StatusAccepted)
		return
	case "initialize":
		if r.Header.Get(headerSession) == "" {
			w.Header().Set(headerSession, rand.Text())
		}
	}
	c := &call{key: key, again: r.Header.Get(HeaderAgain) != "", place: p, label: label(r.Header.Get(headerSession), p, string(m.ID))}
	f.mark(r.Context(), c, m)
	f.dispatch(w, r, c, m, body)
}

// peekMessage reads what matters of a message.
func peekMessage(body []byte) (*message, error) {
	if tooDeep(body) {
		return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("the message is nested deeper than %d", maxDepth)}
	}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		return nil, &refusal{http.StatusBadRequest,
			"the body is a batch, which newer versions of the protocol do not have; send one message in each POST"}
	}
	if err := protocol.CheckJSON(body); err != nil {
		return nil, &refusal{http.StatusRequestEntityTooLarge, err.Error()}
	}
	m := new(message)
	if err := json.Unmarshal(body, m); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, &notJSON{err}
		}
		return nil, &refusal{http.StatusBadRequest, "the body is not one message of JSON-RPC: " + err.Error()}
	}
	if len(m.ID) > maxSession {
		return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("id has %d bytes; the limit is %d", len(m.ID), maxSession)}
	}
	return m, nil
}

// resume makes a call again whose stream broke off, under its own key.
func (f *Face) resume(w http.ResponseWriter, r *http.Request, p *place) {
	last := r.Header.Get(headerLast)
	if last == "" {
		w.Header().Set("Allow", "POST, DELETE")
		fail(w, nil, &refusal{http.StatusMethodNotAllowed, "the server sends nothing of its own accord; a GET needs Last-Event-ID"})
		return
	}
	k, err := f.unseal(last)
	if err != nil {
		fail(w, nil, &refusal{http.StatusBadRequest, err.Error()})
		return
	}
	m, err := peekMessage(k.Body)
	if err != nil {
		fail(w, nil, err)
		return
	}
	r = r.Clone(r.Context())
	r.Method = http.MethodPost
	r.Header.Del(headerLast)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	c := &call{key: k.Key, from: k.From, marked: k.Marked, again: true, place: p, label: label(r.Header.Get(headerSession), p, string(m.ID))}
	f.dispatch(w, r, c, m, k.Body)
}

// dispatch has a message answered.
func (f *Face) dispatch(w http.ResponseWriter, r *http.Request, c *call, m *message, body []byte) {
	end, ok := f.calls.add(c)
	if !ok {
		fail(w, m.ID, &refusal{http.StatusServiceUnavailable, fmt.Sprintf(
			"%d calls are under way, and no more may be, or no more of this sandbox; wait until some have ended", f.calls.places.Used())})
		return
	}
	defer end()
	version := r.Header.Get(headerVersion)
	why := errGone
	if version >= versionNew && r.Header.Get(HeaderKey) == "" {
		why = errCancelled // so this version cancels; who has a key for the call comes back with it
	}
	left := context.AfterFunc(r.Context(), func() { c.cancel(why) })
	defer left()
	out := &stream{w: w}
	if m.Method == "tools/call" && (version == versionResumes || r.Header.Get(HeaderKey) != "") {
		out.id = f.seal(&kept{Key: c.key, From: c.from, Marked: c.marked, Body: body})
	}
	c.prime, c.beat, c.mute = out.prime, out.beat, out.mute
	c.decoded = func() { budget.Of(r.Context()).Keep(heldOfBody * int64(len(body))) }
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	set := &f.whole
	if c.place.sandbox != "" {
		set = &f.scoped
	}
	set.handler().ServeHTTP(out, r)
}

// cancelled ends the call that a notification names. The one who has the call may be a
// server that died: then its process, which has the label of the call, is killed.
func (f *Face) cancelled(r *http.Request, p *place, m *message) {
	var of struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(m.Params, &of) != nil || len(of.ID) > maxSession {
		return
	}
	l := label(r.Header.Get(headerSession), p, string(of.ID))
	if l == "" || f.calls.cancel(l) {
		return
	}
	if killLabelled(r.Context(), p.access.Processes(), l) || p.sandbox != "" || f.cfg.Driver == nil {
		return
	}
	// It may have been started with the argument sandbox.
	sandboxes, err := f.cfg.Driver.List(r.Context())
	if err != nil {
		return
	}
	for i := range sandboxes {
		s, err := f.cfg.Driver.Get(r.Context(), string(sandboxes[i].ID))
		if err == nil && killLabelled(r.Context(), s.Processes(), l) {
			return
		}
	}
}

// killLabelled kills the newest process of a call that another server has had, by the
// label of the call. false: there is none.
func killLabelled(ctx context.Context, m process.Manager, l string) bool {
	found, err := m.List(ctx, process.Filter{Live: true, Labels: map[string]string{labelCall: l}})
	if err != nil || len(found) == 0 {
		return false
	}
	if one, err := m.Get(ctx, process.Selector{ID: found[len(found)-1].ID}); err == nil {
		_, _ = one.Kill(ctx) // it has ended by itself, or list shows it
	}
	return true
}

// Codes of JSON-RPC.
const (
	codeParse   = -32700
	codeInvalid = -32600
)

// fail answers with an error of JSON-RPC, which clients show.
func fail(w http.ResponseWriter, id json.RawMessage, err error) {
	status, code := http.StatusInternalServerError, codeInvalid
	if e, ok := errors.AsType[*refusal](err); ok {
		status = e.status
	} else if _, ok := errors.AsType[*notJSON](err); ok {
		status, code = http.StatusBadRequest, codeParse
	} else if busy, ok := errors.AsType[*budget.BusyError](err); ok {
		status, err = http.StatusTooManyRequests, busy
	}
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	h := w.Header()
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="tend"`)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", "1")
	}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// fails when the client has left
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": err.Error()}})
}
