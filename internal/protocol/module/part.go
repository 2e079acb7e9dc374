// Package module defines the parts of a server. A server itself has listeners,
// authentication, limits and metrics; everything else that it does is a part: a face
// (one wire protocol), a page, a supervisor. A part is a value with a name and at least
// one of the abilities below. The server asks for each ability by its interface, so a
// part has only the methods that it needs:
//
//	Router                answers HTTP
//	Hoster                answers HTTP for host names of its own
//	Runner                works in the background, or has a listener of its own
//	Streamer, io.Closer   ends its streams when the server stops
//	Reporter              adds to `tend status`
//	prometheus.Collector  adds to GET /-/metrics
//
// If a method has a wrong signature, the compiler does not report it; the part only
// lacks that ability. So each part declares its abilities:
//
//	var _ module.Router = (*Face)(nil)
//
// # The life of a part
//
// The server asks for Routes once, then calls Run, then serves. When the daemon ends
// for good, and all processes with it, it waits a second for the streams to end by
// themselves (Streamer). Then it ends the context of Run, closes the parts in order
// (io.Closer) while the running HTTP requests finish, and waits for Run to return.
package module

import (
	"context"
	"fmt"
	"net/http"
)

// Part is one function of the server.
type Part interface {
	// Name is short and never changes: it appears in logs, and in metrics about requests
	// to the part's routes. Parts may share a name, like the two halves of a protocol.
	Name() string
}

// Router is a part that answers HTTP.
type Router interface {
	Part
	// Routes is called once.
	Routes() []Route
}

// Runner is a part with background work. A part with its own listener accepts
// connections here.
type Runner interface {
	Part
	// Run works until ctx ends, and then returns nil. An error ends the server.
	Run(ctx context.Context) error
}

// Streamer is a part that took over connections from the HTTP server, which no longer
// tracks them.
type Streamer interface {
	Part
	// Streams returns the number of such connections.
	Streams() int
}

// Reporter is a part with something to say in `tend status`.
type Reporter interface {
	Part
	// Status returns facts by name, in a few words each: "connections": "3". Parts that
	// share a name also share the names of facts. It may be called before Run.
	Status() map[string]string
}

// Hoster is a part that answers for its own host names, or for names elsewhere in a
// request. The server asks it before it looks for a route.
type Hoster interface {
	Part
	// Hosts returns the handler of the request; nil: this part does not answer it. inside:
	// the request is for a host name where nothing of the server itself may be served,
	// except the routes that are marked so.
	Hosts(r *http.Request) (h http.Handler, inside bool)
}

// Route is a pattern with its handler, and the properties of its requests that the
// server needs before it calls the handler.
type Route struct {
	// Pattern as http.ServeMux takes it: "GET /toy", "/toy.v1.Service/".
	Pattern string
	Handler http.Handler
	// Access says which callers are admitted.
	Access Access
	// Reads reports, by its path, whether a request only reads: it changes nothing, and
	// its answer gives no right to change anything. A read-only login ([Reader]) may send
	// only such requests. nil: no request only reads.
	Reads func(path string) bool
	// Secret reports whether the request's path contains a secret that only permitted
	// callers know. A foreign web page cannot guess such a path, so the guard against them
	// lets it pass. nil: no path does.
	Secret func(path string) bool
	// Body says how the handler uses the body of a request; nil: [Fields].
	Body func(path string) Body
	// Inside: the route is also served on the host names of sandboxes. No other route is.
	Inside bool
	// Page: the route is of the server's own web page. On a name below a domain of TLS it is not served:
	// pages of sandboxes are its neighbours there.
	Page bool
	// OwnDeadline: the handler itself limits how long a body may take to arrive.
	OwnDeadline bool
}

// Access says which callers a route admits. While no token is needed, the server
// also refuses callers that the kernel reports as another user, and foreign web
// pages, whatever Access is; see package server.
type Access int

const (
	// Bearer callers show the server's token in the Authorization header.
	Bearer Access = iota
	// Own: the part checks its own kind of proof.
	Own
	// Open to all, only for GET and HEAD: the answer contains no private data.
	Open
)

// Body says how a handler uses the body of a request; the memory charged for the
// request depends on it.
type Body int

const (
	Fields   Body = iota // held as a whole, and decoded into many small values
	Data                 // held as a whole: input
	Messages             // a stream of enveloped messages, each of which is held
	File                 // written to its destination as it arrives
)

// Mount registers the routes of a part on a mux, each wrapped by wrap, if wrap is not
// nil. A pattern that is malformed, or that conflicts with another, is an error.
func Mount(mux *http.ServeMux, p Router, wrap func(*Route) http.Handler) (err error) {
	for _, r := range p.Routes() {
		h := r.Handler
		if wrap != nil {
			h = wrap(&r)
		}
		if err := handle(mux, r.Pattern, h); err != nil {
			return fmt.Errorf("part %s: %w", p.Name(), err)
		}
	}
	return nil
}

// handle turns the panics of ServeMux.Handle into errors.
func handle(mux *http.ServeMux, pattern string, h http.Handler) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("route %q: %v", pattern, v)
		}
	}()
	mux.Handle(pattern, h)
	return nil
}
