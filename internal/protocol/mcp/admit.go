package mcp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Headers of requests, beside those of the protocol.
const (
	// HeaderSandbox is the sandbox of the client, by ID or name.
	HeaderSandbox = "Tend-Sandbox"
	// HeaderDir is the working directory of calls that name none, absolute.
	HeaderDir = "Tend-Dir"
	// HeaderPath is the PATH of programs, on the machine itself.
	HeaderPath = "Tend-Path"
	// HeaderKey identifies a call, so that a repetition finds its result (at most maxKey
	// bytes).
	HeaderKey = "Idempotency-Key"
	// HeaderAgain: the call may have been made before.
	HeaderAgain = "Tend-Again"
)

const maxKey = 128

// place is where the calls of a client work.
type place struct {
	access driver.Access
	// sandbox is the ID of the one that the client is confined to; "": none.
	sandbox driver.ID
	dir     string // the working directory where a call names none; "": the place's own
	path    string // PATH; "": the place's own
}

// refusal is an error with a status of HTTP.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

// notJSON refuses a body that no parser reads.
type notJSON struct{ err error }

func (e *notJSON) Error() string { return "the body is no JSON: " + e.err.Error() }

// admit finds out who calls, and where the call works. What the kernel and the guard
// against web pages say is asked before, by the server.
func (f *Face) admit(r *http.Request) (*place, error) {
	token := f.cfg.Token()
	full := !token.Set() || f.cfg.Trusted != nil && f.cfg.Trusted(r) || token.Matches(protocol.Bearer(r)) ||
		token.Matches(protocol.AccessToken(r))
	names := r.Header.Values(HeaderSandbox)
	p := &place{access: f.cfg.Machine, dir: r.Header.Get(HeaderDir), path: r.Header.Get(HeaderPath)}
	if p.dir != "" && (p.dir[0] != '/' || len(p.dir) > 4095 || strings.ContainsRune(p.dir, 0)) {
		return nil, &refusal{http.StatusBadRequest, HeaderDir + " is not an absolute path of at most 4095 bytes"}
	}
	unauthorized := &refusal{http.StatusUnauthorized,
		"this server needs a token: send Authorization: Bearer <token>, or the token of a sandbox together with " + HeaderSandbox}
	if len(names) == 0 {
		switch {
		case !full:
			return nil, unauthorized
		case p.access == nil:
			return nil, &refusal{http.StatusBadRequest, "this server has sandboxes alone: name one in the header " + HeaderSandbox}
		}
		return p, nil
	}
	if len(names) > 1 || names[0] == "" || len(names[0]) > driver.MaxName {
		return nil, &refusal{http.StatusBadRequest,
			fmt.Sprintf("the header %s comes %d times, or has none of 1 to %d bytes; name one sandbox, or leave it out for the machine",
				HeaderSandbox, len(names), driver.MaxName)}
	}
	p.path = "" // of the machine
	if f.cfg.Driver == nil {
		return nil, &refusal{http.StatusNotFound, "this server has no sandboxes"}
	}
	s, err := f.cfg.Driver.Get(r.Context(), names[0])
	var info driver.Info
	if err == nil {
		info, err = s.Info(r.Context())
	}
	if !full && (err != nil || !f.ofSandbox(r, string(info.ID))) {
		return nil, unauthorized // it does not tell whether there is one
	}
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return nil, &refusal{http.StatusNotFound, fmt.Sprintf("there is no sandbox %.100q", names[0])}
	case err != nil:
		return nil, err
	}
	p.access, p.sandbox = s, info.ID
	budget.Of(r.Context()).For(budget.Sandbox(info.ID))
	return p, nil
}

// ofSandbox reports whether a request shows the token of the sandbox.
func (f *Face) ofSandbox(r *http.Request, id string) bool {
	token := f.cfg.Secret.SandboxToken(id)
	return token.Matches(protocol.Bearer(r)) || token.Matches(protocol.AccessToken(r))
}
