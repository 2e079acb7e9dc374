package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Services are the declared services of the machine.
type Services interface {
	// Start, Stop and Restart return once what was asked for is written down. No names:
	// all.
	Start(ctx context.Context, project string, names []string) error
	Stop(ctx context.Context, project string, names []string) error
	Restart(ctx context.Context, project string, names []string) error
	List(ctx context.Context) (*tendv1.ListServicesResponse, error)
}

// Config of the face. Machine or Driver is required.
type Config struct {
	// Machine is for calls that name no sandbox. nil: such calls are refused.
	Machine driver.Access
	// Driver has the sandboxes. nil: there are none.
	Driver driver.Driver
	// Code runs cells in sandboxes; nil: none do.
	Code *interpreter.Service
	// Prepared are the templates that the server builds itself, by their names.
	Prepared map[string]func(context.Context) error
	// Services of the machine; nil: there are none.
	Services Services
	// Secret creates the tokens of sandboxes, and signs the ids of events.
	Secret *protocol.Secret
	// Token returns the token that callers must show now; nil: none.
	Token func() protocol.Token
	// Trusted reports whether a caller needs no token. nil: every caller needs one.
	Trusted func(*http.Request) bool
	Trace   protocol.Trace
	Version string
	Log     *slog.Logger // nil: nothing is logged
}

// Face is MCP as a part of the server.
type Face struct {
	cfg   Config
	calls calls
	// locks hold one another's edits of a file apart, by its name's hash.
	locks [64]sync.Mutex
	// edits has one for each edit that holds its file in memory.
	edits chan struct{}
	watch watches
	once  sync.Once
	// whole and scoped are the tools for all, and for one sandbox.
	whole, scoped toolset
}

var (
	_ module.Router   = (*Face)(nil)
	_ module.Reporter = (*Face)(nil)
	_ io.Closer       = (*Face)(nil)
)

// New creates the face. It authenticates callers itself.
func New(cfg Config) (*Face, error) {
	if cfg.Machine == nil && cfg.Driver == nil {
		return nil, errors.New("mcp: a machine or a driver of sandboxes is needed")
	}
	if cfg.Secret == nil {
		cfg.Secret = protocol.NewSecret()
	}
	if cfg.Token == nil {
		cfg.Token = func() protocol.Token { return "" }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	f := &Face{cfg: cfg, edits: make(chan struct{}, maxEdits)}
	f.calls.stopping, f.calls.places = make(chan struct{}), budget.New(maxCalls)
	f.watch.f = f
	f.whole.make, f.scoped.make = func(listen bool) *sdk.Server { return f.newServer(false, listen) },
		func(listen bool) *sdk.Server { return f.newServer(true, listen) }
	return f, nil
}

// Name implements [module.Part].
func (f *Face) Name() string { return "mcp" }

// Path is where the face is served.
const Path = "/mcp"

// Routes implements [module.Router].
func (f *Face) Routes() []module.Route {
	return []module.Route{{Pattern: Path, Handler: http.HandlerFunc(f.serve), Access: module.Own}}
}

// Status implements [module.Reporter].
func (f *Face) Status() map[string]string {
	return map[string]string{"calls": f.calls.count()}
}

// Close ends waiting calls: their clients are asked to reconnect, and no process is killed.
func (f *Face) Close() error {
	f.once.Do(func() { close(f.calls.stopping) })
	f.watch.close()
	return nil
}
