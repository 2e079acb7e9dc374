package native

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/tend-run/tend/face"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// MaxRequest bounds one message of a client, in bytes.
const MaxRequest = 16 << 20

// Config of the native face.
type Config struct {
	// Manager has the processes. Required.
	Manager process.Manager
	// Status, Upgrade and Shutdown answer the AdminService. A nil one is
	// answered with "not supported". Shutdown and Upgrade may end this server
	// only after they have returned.
	Status   func(context.Context) (*tendv1.StatusResponse, error)
	Upgrade  func(context.Context, *tendv1.UpgradeRequest) (*tendv1.UpgradeResponse, error)
	Shutdown func(ctx context.Context, keep bool) error
	// Stopping is closed when the server is about to stop: open streams then
	// end with going_away. Nil: never.
	Stopping <-chan struct{}
	// Instance names this run of the server. Version is that of the program.
	Instance, Version string
	// Held: the listening sockets outlive this server. Clients are told, and
	// come back at once when it dies.
	Held bool
	// Heartbeat is the longest silence of a stream. 0: 15 s.
	Heartbeat time.Duration
}

// Face is the native API as a face of the server.
type Face struct{ cfg Config }

// New makes the face. The caller guards it: authorization is not its business.
func New(cfg Config) *Face {
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = tendpb.Heartbeat
	}
	return &Face{cfg: cfg}
}

// Name is "native".
func (f *Face) Name() string { return "native" }

// Register mounts /tend.v1.ProcessService/, /tend.v1.ViewService/ and
// /tend.v1.AdminService/.
func (f *Face) Register(mux *http.ServeMux) error {
	if f.cfg.Manager == nil {
		return errors.New("the native face needs a manager of processes")
	}
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(MaxRequest), face.Codecs(),
		connect.WithCompression("gzip", nil, nil),
		connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, v any) error {
			return connect.NewError(connect.CodeInternal, errors.New(spec.Procedure+" hit a fault of the server; this request ended, nothing else did"))
		}),
	}
	mux.Handle(tendv1connect.NewProcessServiceHandler(&processes{cfg: f.cfg}, opts...))
	mux.Handle(tendv1connect.NewViewServiceHandler(&views{processes{cfg: f.cfg}}, opts...))
	mux.Handle(tendv1connect.NewAdminServiceHandler(&admin{cfg: f.cfg}, opts...))
	return nil
}
