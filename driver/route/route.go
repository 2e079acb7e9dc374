// Package route finds the sandbox that a request is for, as E2B's clients name
// it:
//
//	https://49983-ID.DOMAIN/…          port and sandbox in the host name
//	https://sandbox.DOMAIN/…           both in headers: E2b-Sandbox-Id, E2b-Sandbox-Port
//	http://localhost:PORT/…            the same headers, or none
//
// A host name below one of the configured domains names a sandbox that there is;
// all else is an error. By other names, a server is also called by clients that make
// their IDs up (with E2B_DEBUG they send debug_sandbox_id). There an ID that no
// sandbox has means [Router.Default], as no ID does. A sandbox that is not ready is
// an error everywhere.
package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/tend-run/tend/driver"
)

const (
	headerID   = "E2b-Sandbox-Id"
	headerPort = "E2b-Sandbox-Port"
)

// Router finds sandboxes. The zero value finds none.
type Router struct {
	// Driver of the sandboxes. nil: there are none.
	Driver driver.Driver
	// Default is for requests that name no sandbox. nil: they are refused, and so
	// is each ID that no sandbox has. A driver that isolates needs it so: what is
	// meant for a sandbox that has ended must not run outside.
	Default driver.Access
	// Domains below which sandboxes have host names, in lower case, without a dot
	// at either end.
	Domains []string
}

// Target is where a request goes.
type Target struct {
	driver.Access
	// ID of the sandbox; "": this is Router.Default.
	ID driver.ID
	// Port inside that the request names; 0: none.
	Port int
}

// UnknownError: no sandbox with this ID is ready.
type UnknownError struct {
	ID string
	// Exists: there is one, which is stopped or has failed.
	Exists bool
}

func (e *UnknownError) Error() string { return fmt.Sprintf("no sandbox %.100q is ready", e.ID) }

// Of returns the target of a request. Errors: [*UnknownError], and those of the
// driver.
func (r *Router) Of(req *http.Request) (Target, error) {
	label, strict := r.label(req.Host)
	portText, id, named := strings.Cut(label, "-")
	if !named {
		id, portText = req.Header.Get(headerID), req.Header.Get(headerPort)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if named && err != nil {
		return Target{}, &UnknownError{ID: label}
	}
	t, err := r.find(req.Context(), id)
	if err != nil {
		if unknown, is := errors.AsType[*UnknownError](err); is && !unknown.Exists && !strict && r.Default != nil {
			return Target{Access: r.Default}, nil
		}
		return Target{}, err
	}
	t.Port = int(port)
	return t, nil
}

func (r *Router) find(ctx context.Context, id string) (Target, error) {
	unknown := &UnknownError{ID: id}
	if r.Driver == nil || !driver.LikeID(id) { // IDs alone: names may be given to another sandbox
		return Target{}, unknown
	}
	s, err := r.Driver.Get(ctx, strings.ToLower(id))
	if err == nil {
		var info driver.Info
		if info, err = s.Info(ctx); err == nil && info.State == driver.Ready {
			return Target{Access: s, ID: info.ID}, nil
		}
		unknown.Exists = err == nil
	}
	if err == nil || errors.Is(err, driver.ErrNotFound) {
		return Target{}, unknown
	}
	return Target{}, fmt.Errorf("sandbox %s: %w", id, err)
}

// label returns what stands before a configured domain in a host name. ok: the
// host is below one.
func (r *Router) label(host string) (label string, ok bool) {
	if len(r.Domains) == 0 {
		return "", false
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, d := range r.Domains {
		if label, ok := strings.CutSuffix(host, "."+d); ok {
			return label, true
		}
	}
	return "", false
}
