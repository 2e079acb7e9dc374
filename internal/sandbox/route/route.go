// Package route finds the sandbox of a request, which E2B's clients name in these ways:
//
//	https://49983-ID.DOMAIN/…          port and sandbox in the host name
//	https://sandbox.DOMAIN/…           both in headers: E2b-Sandbox-Id, E2b-Sandbox-Port
//	http://localhost:PORT/…            the same headers, or none
//	http://49983-ID.localhost:PORT/…   as below a domain; browsers and curl find localhost themselves
//
// Requests from inside of a sandbox are for it, however they name another ([WithInside]).
//
// A host name below one of the configured domains must name an existing sandbox;
// everything else is an error. With other host names, clients may also send no ID, or a
// placeholder: with E2B_DEBUG they send debug_sandbox_id. These requests get
// [Router.Default]. Requests with any other ID never do: a request that is meant for a
// sandbox must not run on the machine, whatever is wrong with its ID.
//
// A sandbox that is not ready is an error everywhere. A paused sandbox that traffic may
// resume is returned paused; call [Target.Awake] after the caller's permission was
// checked.
package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

const (
	headerID   = "E2b-Sandbox-Id"
	headerPort = "E2b-Sandbox-Port"
)

// debugID is what E2B's clients send with E2B_DEBUG, where there is one machine alone.
const debugID = "debug_sandbox_id"

// Router finds sandboxes. The zero value finds none.
type Router struct {
	// Driver of the sandboxes. nil: there are none.
	Driver driver.Driver
	// Default is for requests that name no sandbox. nil: they are refused.
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
	// Info of the sandbox, as it was when it was found.
	Info driver.Info
	// Asleep: it is paused, and a request may wake it.
	Asleep bool
	// ByHost: the host name is the sandbox's own. Nothing of the server itself is
	// served there.
	ByHost bool
}

// wakeTime is how long a sandbox has at least that a request woke.
const wakeTime = 5 * time.Minute

// Awake makes a sandbox go on that was found asleep.
func (t Target) Awake(ctx context.Context) error {
	if !t.Asleep {
		return nil
	}
	s, ok := t.Access.(driver.Sandbox)
	if !ok {
		return &UnknownError{ID: string(t.ID), Exists: true}
	}
	ctx = context.WithoutCancel(ctx) // others may wait for the same
	if least := time.Now().Add(wakeTime); !t.Info.Deadline.IsZero() && t.Info.Deadline.Before(least) {
		// Without it, the driver would drop a deadline that has passed.
		if _, err := s.Update(ctx, driver.Change{Deadline: &least}); err != nil {
			return err
		}
	}
	return s.Start(ctx)
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
	if id := Inside(req.Context()); id != "" {
		t, err := r.Find(req.Context(), string(id))
		t.Port, t.ByHost = insidePort(req.Context()), true
		return t, err
	}
	label, strict := r.label(req.Host)
	portText, id, named := strings.Cut(label, "-")
	if !named {
		id, portText = req.Header.Get(headerID), req.Header.Get(headerPort)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if named && err != nil {
		return Target{}, &UnknownError{ID: label}
	}
	if !strict && (id == "" || id == debugID) && r.Default != nil {
		return Target{Access: r.Default}, nil
	}
	if err != nil && portText != "" { // not the nearest port that there is
		return Target{}, &UnknownError{ID: id}
	}
	t, err := r.Find(req.Context(), id)
	if err != nil {
		return Target{}, err
	}
	t.Port, t.ByHost = int(port), named
	return t, nil
}

// Named reports whether a request names a sandbox, whether there is one or not: by
// its host name, or in the header with a port. Then port is the one that it names.
func (r *Router) Named(req *http.Request) (port int, byHost, named bool) {
	if Inside(req.Context()) != "" {
		return insidePort(req.Context()), true, true
	}
	label, _ := r.label(req.Host)
	portText, _, byHost := strings.Cut(label, "-")
	n, err := strconv.ParseUint(portText, 10, 16)
	switch {
	case byHost && err == nil:
		return int(n), true, true
	case byHost: // nothing is served there, of the server's own neither
		return 0, true, true
	}
	if n, err = strconv.ParseUint(req.Header.Get(headerPort), 10, 16); err != nil || !driver.LikeID(req.Header.Get(headerID)) {
		return 0, false, false
	}
	return int(n), false, true
}

// IsAPI reports whether a request is for E2B's control plane by its name: "api." and a
// domain.
func (r *Router) IsAPI(req *http.Request) bool {
	label, below := r.label(req.Host)
	return below && label == "api" && Inside(req.Context()) == ""
}

// Find returns the sandbox with an ID. Errors as of Of.
func (r *Router) Find(ctx context.Context, id string) (Target, error) {
	unknown := &UnknownError{ID: id}
	if r.Driver == nil || !driver.LikeID(id) { // IDs alone: names may be given to another sandbox
		return Target{}, unknown
	}
	s, err := r.Driver.Get(ctx, strings.ToLower(id))
	if err == nil {
		var info driver.Info
		if info, err = s.Info(ctx); err == nil {
			t := Target{Access: s, ID: info.ID, Info: info}
			switch info.State {
			case driver.Ready:
				return t, nil
			case driver.Paused, driver.Stopped:
				if t.Asleep = info.Wake; t.Asleep {
					return t, nil
				}
			}
			unknown.Exists = true
		}
	}
	if err == nil || errors.Is(err, driver.ErrNotFound) {
		return Target{}, unknown
	}
	return Target{}, fmt.Errorf("sandbox %s: %w", id, err)
}

// local is a domain that each machine has for itself. Below it, only what has the form
// of a sandbox's name is one, whatever is wrong with its port.
const local = "localhost"

// label returns what stands before a domain in a host name. ok: the host is below
// one.
func (r *Router) label(host string) (label string, ok bool) {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, d := range r.Domains {
		if label, ok := strings.CutSuffix(host, "."+d); ok {
			return label, true
		}
	}
	if label, ok := strings.CutSuffix(host, "."+local); ok {
		if endsInID(label) {
			return label, true
		}
	}
	return "", false
}

// endsInID reports whether a label has the form of something, a hyphen, and an ID.
func endsInID(label string) bool {
	for i, c := range label {
		if c == '-' && driver.LikeID(label[i+1:]) {
			return true
		}
	}
	return false
}
