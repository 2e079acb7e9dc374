package native

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// MaxRequest bounds one message of a client, in bytes.
const MaxRequest = 16 << 20

// Admin answers for the daemon.
type Admin interface {
	Status(ctx context.Context) (*tendv1.StatusResponse, error)
	// Upgrade and Shutdown may end this server only after they have returned.
	Upgrade(ctx context.Context, req *tendv1.UpgradeRequest) (*tendv1.UpgradeResponse, error)
	// Shutdown ends the daemon; with keep its processes go on.
	Shutdown(ctx context.Context, keep bool) error
}

// Page is what the API has of the page.
type Page interface {
	// Code creates a code for one login, which may be read-only. door: for the page's own port. Empty:
	// no login is needed.
	Code(reads, door bool) string
	// Visitor names the login with which the ports of a sandbox are opened, or the token for "".
	Visitor(login string) string
}

// Config of the native face.
type Config struct {
	// Manager has the processes. Required.
	Manager process.Manager
	// Driver has the sandboxes. nil: there are none.
	Driver driver.Driver
	// Machine has the files for calls that name no sandbox. nil: such calls are refused.
	Machine driver.Access
	// Secret creates the tokens of sandboxes. nil: they match nothing.
	Secret *protocol.Secret
	// Domains below which sandboxes have host names.
	Domains []string
	// Dir is only for the files of template builds. "": builds accept no files.
	Dir string
	// Admin answers the AdminService; nil: "not supported".
	Admin Admin
	// Services answers the ServiceService; nil: "not supported".
	Services Services
	// Chats answers the ChatService; nil: "not supported".
	Chats Chats
	// Code answers the CodeService; nil: "not supported".
	Code *interpreter.Service
	// Prepared builds templates that there need not be yet, by their names.
	Prepared map[string]func(context.Context) error
	// Kept answers FileBefore of the FileService; nil: "not supported".
	Kept Kept
	// Keys answers the KeyService; nil: "not supported".
	Keys Keys
	// Page is behind OpenPage, and behind the tickets of ports; nil: "not supported", and the
	// tickets are of nobody.
	Page Page
	// OpenDoor opens a port for the page alone where the daemon listens on no TCP port, and returns
	// its URL. nil: there is none.
	OpenDoor func() (string, error)
	// Usage returns the resource usage of the machine's sessions, by the pid of their
	// leader. nil: it is unknown.
	Usage func() map[int]Use
	// Measured answers Usage of the OverviewService; nil: "not supported".
	Measured func(context.Context, *tendv1.UsageRequest) (*tendv1.UsageResponse, error)
	// Instance names this run of the server. Version is that of the program.
	Instance, Version string
	// Held: the listening sockets outlive this server. Clients are told, and reconnect at
	// once when it dies.
	Held bool
	// Heartbeat is the longest silence of a stream. 0: 15 s.
	Heartbeat time.Duration
}

// Face is the native API as a part of the server.
type Face struct {
	cfg       Config
	ports     *ports
	sandboxes *sandboxes
	views     *overviews
	once      sync.Once
	// stopping is closed by Close.
	stopping chan struct{}
}

var (
	_ module.Router   = (*Face)(nil)
	_ module.Streamer = (*Face)(nil)
	_ io.Closer       = (*Face)(nil)
)

// New creates the face. The caller guards it: the face does no authorization.
func New(cfg Config) (*Face, error) {
	if cfg.Manager == nil {
		return nil, errors.New("the native face needs a manager of processes")
	}
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = tendpb.Heartbeat
	}
	f := &Face{cfg: cfg, ports: newPorts(cfg.Driver), stopping: make(chan struct{})}
	f.sandboxes = &sandboxes{driver: cfg.Driver, secret: cfg.Secret, page: cfg.Page, domains: cfg.Domains, heartbeat: cfg.Heartbeat,
		stopping: f.stopping, prepared: cfg.Prepared}
	f.sandboxes.builds.dir = cfg.Dir
	f.views = &overviews{looker: looker{cfg: &f.cfg}, manager: cfg.Manager, version: cfg.Version, heartbeat: cfg.Heartbeat,
		stopping: f.stopping, measured: cfg.Measured}
	return f, nil
}

// Name implements [module.Part].
func (f *Face) Name() string { return "native" }

// Routes implements [module.Router]: /tend.v1.ProcessService/, /tend.v1.ViewService/,
// /tend.v1.AdminService/, /tend.v1.SandboxService/, /tend.v1.FileService/,
// /tend.v1.ImageService/, /tend.v1.ServiceService/, /tend.v1.KeyService/, /tend.v1.OverviewService/,
// /tend.v1.ChatService/, /tend.v1.CodeService/, tendpb.DialPath,
// and the files by plain HTTP.
func (f *Face) Routes() []module.Route {
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(MaxRequest), protocol.Codecs(),
		connect.WithCompression("gzip", nil, nil), connect.WithInterceptors(withholding{}),
		connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, v any) error {
			return connect.NewError(connect.CodeInternal,
				errors.New(spec.Procedure+" hit a fault of the server; this request ended, nothing else did"))
		}),
	}
	p := &processes{cfg: f.cfg, stopping: f.stopping, named: new(claims)}
	fs := &fileService{driver: f.cfg.Driver, machine: f.cfg.Machine, kept: f.cfg.Kept,
		watches: budget.New(MaxWatches), heartbeat: f.cfg.Heartbeat, stopping: f.stopping}
	plain := plainFiles{fs, connect.NewErrorWriter()}
	routes := []module.Route{
		service[tendv1connect.ProcessServiceHandler](tendv1connect.ProcessServiceName, tendv1connect.NewProcessServiceHandler, p, opts),
		service[tendv1connect.ViewServiceHandler](tendv1connect.ViewServiceName, tendv1connect.NewViewServiceHandler, &views{*p}, opts),
		service[tendv1connect.AdminServiceHandler](tendv1connect.AdminServiceName, tendv1connect.NewAdminServiceHandler,
			&admin{f.cfg.Admin, f.cfg.Page, f.cfg.OpenDoor}, opts),
		service[tendv1connect.SandboxServiceHandler](tendv1connect.SandboxServiceName, tendv1connect.NewSandboxServiceHandler,
			f.sandboxes, append(opts[:len(opts):len(opts)], protocol.StrictCodecs())),
		service[tendv1connect.ImageServiceHandler](tendv1connect.ImageServiceName, tendv1connect.NewImageServiceHandler,
			images{f.sandboxes}, opts),
		service[tendv1connect.FileServiceHandler](tendv1connect.FileServiceName, tendv1connect.NewFileServiceHandler, fs, opts),
		service[tendv1connect.ServiceServiceHandler](tendv1connect.ServiceServiceName, tendv1connect.NewServiceServiceHandler,
			&services{kept: f.cfg.Services, heartbeat: f.cfg.Heartbeat, stopping: f.stopping}, opts),
		service[tendv1connect.KeyServiceHandler](tendv1connect.KeyServiceName, tendv1connect.NewKeyServiceHandler, keys{f.cfg.Keys}, opts),
		service[tendv1connect.OverviewServiceHandler](tendv1connect.OverviewServiceName, tendv1connect.NewOverviewServiceHandler, f.views, opts),
		service[tendv1connect.ChatServiceHandler](tendv1connect.ChatServiceName, tendv1connect.NewChatServiceHandler,
			&chats{kept: f.cfg.Chats, heartbeat: f.cfg.Heartbeat, stopping: f.stopping}, opts),
		service[tendv1connect.CodeServiceHandler](tendv1connect.CodeServiceName, tendv1connect.NewCodeServiceHandler,
			&cells{code: f.cfg.Code, driver: f.cfg.Driver, heartbeat: f.cfg.Heartbeat, stopping: f.stopping}, opts),
		{Pattern: "GET " + tendpb.DialPath, Handler: f.ports},
		{Pattern: contentPath, Handler: plain.content(), Body: func(string) module.Body { return module.File }},
		{Pattern: "GET " + archivePath, Handler: plain.archive()},
		{Pattern: "GET " + watchPath, Handler: plain.watch()},
		{Pattern: "PUT " + archivePath, Handler: plain.archive(), Body: func(string) module.Body { return module.File }},
	}
	routes[0].Handler = holding(routes[0].Handler, tendv1connect.ProcessServiceReadProcedure, tendv1connect.ProcessServiceRunProcedure,
		tendv1connect.ProcessServiceEventsProcedure)
	for n := range routes {
		routes[n].Reads = onlyReads
	}
	return routes
}

// service is the route of a service of Connect. Its first request makes the handler: most
// daemons serve few of the services, and a server that starts answers sooner.
func service[S any](name string, handler func(S, ...connect.HandlerOption) (string, http.Handler), serves S,
	opts []connect.HandlerOption) module.Route {
	made := sync.OnceValue(func() http.Handler {
		_, h := handler(serves, opts...)
		return h
	})
	return module.Route{
		Pattern: "/" + name + "/",
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { made().ServeHTTP(w, r) }),
		Body:    bodyOf,
	}
}

func bodyOf(path string) module.Body {
	switch path {
	case tendv1connect.ProcessServiceWriteStreamProcedure, tendv1connect.SandboxServiceBuildTemplateProcedure,
		tendv1connect.FileServiceWriteFileProcedure, tendv1connect.ImageServiceImportImageProcedure:
		return module.Messages
	case tendv1connect.ProcessServiceWriteProcedure:
		return module.Data
	}
	return module.Fields
}

// Streams implements [module.Streamer]: connections to ports inside.
func (f *Face) Streams() int { return f.ports.streams() }

// Close ends the open streams with going_away, and cuts connections to ports inside. It
// does not wait for the streams: they are requests of the HTTP server.
func (f *Face) Close() error {
	f.once.Do(func() { close(f.stopping) })
	f.ports.close()
	f.sandboxes.builds.wg.Wait()
	return nil
}
