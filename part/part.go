// Package part says what a server is made of. A server has listeners,
// authentication, limits and metrics; all that it does beyond that is a part: a
// face (one wire protocol), a page, a supervisor. A part is a value with a name
// and at least one of the abilities below. The server asks for each ability by
// its interface, so a part has only the methods that it needs:
//
//	Router                answers HTTP
//	Hoster                answers HTTP for host names of its own
//	Runner                works in the background, or has a listener of its own
//	Streamer, io.Closer   says farewell when the server stops
//	Reporter              adds to `tend status`
//	prometheus.Collector  adds to GET /-/metrics
//
// The compiler does not report a method with a wrong signature; the part would only
// lack that ability. So each part states which abilities it has:
//
//	var _ part.Router = (*Face)(nil)
//
// # The life of a part
//
// The server asks for Routes once, then calls Run, then serves. When the daemon
// ends for good, and all processes with it, it waits a second for the streams to
// end by themselves (Streamer). Then it ends the context of Run, closes the
// parts in their order (io.Closer) while the HTTP requests that are being served
// come to their end, and waits for Run to return.
package part

import (
	"context"
	"fmt"
	"net/http"
)

// Part is one thing that the server does.
type Part interface {
	// Name is short, and stays: it stands in logs, and in metrics beside the
	// requests to the part's routes. Parts may share one, as the two halves of a
	// protocol do.
	Name() string
}

// Router is a part that answers HTTP.
type Router interface {
	Part
	// Routes is called once.
	Routes() []Route
}

// Runner is a part with work of its own. A part that listens on a port of its
// own accepts here.
type Runner interface {
	Part
	// Run works until ctx ends, and then returns nil. An error ends the server.
	Run(ctx context.Context) error
}

// Streamer is a part with connections that it took over from the HTTP server,
// which knows nothing of them any more.
type Streamer interface {
	Part
	// Streams is how many there are.
	Streams() int
}

// Reporter is a part with something to say in `tend status`.
type Reporter interface {
	Part
	// Status returns facts by name, in a few words each: "connections": "3". Parts
	// that share a name share the names of facts, too. It may be called before Run.
	Status() map[string]string
}

// Hoster is a part that answers for host names of its own, or for what other parts of
// a request name. The server asks it before it looks for a route.
type Hoster interface {
	Part
	// Hosts returns what answers the request; nil: this part does not. inside: the
	// request is for a host name at which nothing of the server itself may be served,
	// but for the routes that are marked so.
	Hosts(r *http.Request) (h http.Handler, inside bool)
}

// Route is a pattern, and what the server has to know of its requests before
// the handler is called.
type Route struct {
	// Pattern as http.ServeMux takes it: "GET /toy", "/toy.v1.Service/".
	Pattern string
	Handler http.Handler
	// Access says which callers are admitted.
	Access Access
	// Reads reports whether a request only reads, by its path: nothing becomes other than
	// it was, and nothing in the answer gives a right to change it. A browser that is
	// logged in to read alone ([Reader]) may make no other. nil: no request does.
	Reads func(path string) bool
	// Secret reports whether the request's path holds a secret that only permitted
	// callers know. No foreign web page can make up such a path, so the guard against
	// them lets it pass. nil: no path does.
	Secret func(path string) bool
	// Body says what becomes of the body of a request; nil: [Fields].
	Body func(path string) Body
	// Inside: the route is there on the host names of sandboxes, too. No other is.
	Inside bool
	// OwnDeadline: the handler bounds by itself how long a body may take to come.
	OwnDeadline bool
}

// Access says which callers a route admits. While no token is needed, the server
// also refuses callers that the kernel reports as another user, and foreign web
// pages, whatever Access is; see package server.
type Access int

const (
	// Bearer callers show the server's token in the Authorization header.
	Bearer Access = iota
	// Own: the part asks for its own kind of proof.
	Own
	// Open to all, for GET and HEAD alone: the answer holds no facts.
	Open
)

// Body is what becomes of the body of a request, which decides what the request
// is charged for it.
type Body int

const (
	Fields   Body = iota // held as a whole, and decoded into many small values
	Data                 // held as a whole: input
	Messages             // a stream of enveloped messages, each of which is held
	File                 // goes to its place as it comes
)

// Mount puts the routes of a part on a mux, each behind what wrap puts in front
// of it; nil: nothing. The patterns of http.ServeMux that are malformed, or in
// conflict with another, are an error.
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
