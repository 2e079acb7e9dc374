package e2bapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/eventlog"
)

// envdVersion is the version of envd whose behaviour the SDKs may count on, where
// Config has none.
const envdVersion = "0.6.13"

const (
	maxBody      = 1 << 20 // bytes of a request
	maxBuildBody = 4 << 20 // bytes of the start of a build
)

// Config of the face. Driver and Secret are required.
type Config struct {
	Driver driver.Driver
	// Secret creates the tokens of sandboxes and uploads.
	Secret *protocol.Secret
	// Token returns the token from which keys are derived; nil, or a token that is not set:
	// any key is accepted.
	Token func() protocol.Token
	// Trusted reports whether a caller needs no key; nil: every caller needs one.
	Trusted func(*http.Request) bool
	// Domains below which sandboxes have host names. Clients are told the one that they came by, else the
	// first, with Port, on which this server speaks TLS; 0: another program does, on the usual port.
	Domains []string
	Port    int
	// Dir stores uploads for builds, and builds that have not started. It is created if it
	// is missing. Empty: templates cannot be built.
	Dir string
	// Prepared are templates that this server builds itself when they are first asked for, by name: each returns when the
	// template is there, or the context is over.
	Prepared map[string]func(context.Context) error
	// PublicURL is the address of this server for clients, without a slash at its end.
	// Empty: the address of the request (Host, X-Forwarded-*).
	PublicURL string
	// Events of sandboxes; nil: clients are told of none. Dial connects to the receivers of webhooks, and Refuses says
	// where it never does; both are needed with Events, and Dir is.
	Events  *eventlog.Log
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Refuses func(netip.AddrPort) error
	// EnvdVersion is reported to clients. Empty: 0.6.13.
	EnvdVersion string

	Log *slog.Logger // nil: nothing is logged
}

// Face serves the protocol.
type Face struct {
	driver    driver.Driver
	secret    *protocol.Secret
	token     func() protocol.Token
	trusted   func(*http.Request) bool
	domains   []string
	port      int
	prepared  map[string]func(context.Context) error
	publicURL string
	version   string
	machine   machine
	store     *store
	helpers   turns
	over      chan struct{} // closed when the server ends
	history   *eventlog.Log
	hooks     *hooks
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	refuses   func(netip.AddrPort) error
	began     time.Time
	logging   chan struct{} // has room for as many as read logs, or list a volume, at a time
	log       *slog.Logger
}

// New returns the face.
func New(c Config) (*Face, error) {
	if c.Driver == nil || c.Secret == nil {
		return nil, errors.New("e2bapi: a driver and a secret are needed")
	}
	f := &Face{
		driver: c.Driver, secret: c.Secret, token: c.Token, trusted: c.Trusted, domains: c.Domains, port: c.Port, prepared: c.Prepared,
		publicURL: strings.TrimRight(c.PublicURL, "/"), version: c.EnvdVersion, machine: machineOf(c.Dir), began: time.Now(),
		logging: make(chan struct{}, logsAtOnce), log: c.Log, history: c.Events, dial: c.Dial, refuses: c.Refuses,
		over: make(chan struct{}),
	}
	if f.token == nil {
		f.token = func() protocol.Token { return "" }
	}
	if f.trusted == nil {
		f.trusted = func(*http.Request) bool { return false }
	}
	if f.version == "" {
		f.version = envdVersion
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if f.store, err = openStore(c.Dir); err == nil && f.history != nil {
		f.hooks, err = openHooks(filepath.Join(c.Dir, "webhooks.json"))
	}
	return f, err
}

var _ module.Router = (*Face)(nil)

// Name implements [module.Part].
func (f *Face) Name() string { return "e2b" }

// Routes implements [module.Router]. Each is a tree with a mux of its own: in the
// server's mux the patterns would be in conflict with those of other faces, or with
// each other.
func (f *Face) Routes() []module.Route {
	all := f.needsKey(f.handlers(f.sandboxPaths(), f.templatePaths(), f.volumePaths(), f.eventPaths(), elsewhere()))
	// In one mux with /templates/{id}/tags it would be ambiguous.
	aliases := f.needsKey(f.handlers(map[string]handler{"GET /templates/aliases/{alias}": f.alias}))
	routes := []module.Route{
		{Pattern: "/templates/aliases/", Handler: aliases, Access: module.Own},
		{Pattern: "PUT " + uploadPath + "{token}", Handler: http.HandlerFunc(f.upload), Access: module.Own,
			Body: func(string) module.Body { return module.File }},
		f.contentRoute(),
		f.sudoRoute(),
	}
	for _, tree := range []string{
		"/sandboxes", "/v2/sandboxes", "/snapshots", "/templates", "/v2/templates", "/v3/templates", "/default-templates",
		"/volumes", "/secrets", "/teams", "/nodes", "/api-keys", "/access-tokens", "/events",
	} {
		for _, pattern := range []string{tree, tree + "/"} {
			routes = append(routes, module.Route{Pattern: pattern, Handler: all, Access: module.Own})
		}
	}
	return routes
}

// handler answers a request, or returns what is wrong with it.
type handler func(http.ResponseWriter, *http.Request) error

func (f *Face) handlers(trees ...map[string]handler) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			limit := int64(maxBody)
			if strings.HasPrefix(r.URL.Path, "/v2/templates/") {
				limit = maxBuildBody
			}
			r.Body = http.MaxBytesReader(w, r.Body, limit)
			if err := h(w, r); err != nil {
				f.refuse(w, err)
			}
		})
	}
	for _, tree := range trees {
		for pattern, h := range tree {
			handle(pattern, h)
		}
	}
	handle("/", func(_ http.ResponseWriter, r *http.Request) error {
		return &problem{http.StatusNotFound, r.Method + " " + r.URL.Path + " is no path of this API"}
	})
	return mux
}

// elsewhere are the parts of E2B's API that there are not here.
func elsewhere() map[string]handler {
	paths := map[string]handler{}
	for name, instead := range map[string]string{
		"secrets": "give variables when the sandbox is made (envVars)", "teams": "there are no teams here", "nodes": "this server is one machine",
		"api-keys": "this server has one key, its token", "access-tokens": "E2B_ACCESS_TOKEN may be anything; E2B_API_KEY is what counts",
	} {
		h := func(http.ResponseWriter, *http.Request) error { return unsupported("/"+name, instead) }
		paths["/"+name], paths["/"+name+"/"] = h, h
	}
	return paths
}

// needsKey refuses callers that do not show the key, if there is one.
func (f *Face) needsKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := f.token(); token.Set() && !f.trusted(r) {
			key, header, bearer := protocol.E2BKey(token), r.Header.Get("X-Api-Key"), protocol.Bearer(r)
			if !key.Matches(header) && !token.Matches(header) && !token.Matches(bearer) && !key.Matches(bearer) {
				f.refuse(w, &problem{http.StatusUnauthorized, "this server needs its key: set E2B_API_KEY, which is sent as X-API-Key"})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
