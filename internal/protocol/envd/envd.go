package envd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/rs/cors"

	"github.com/tend-run/tend/internal/gen/envd/process/processconnect"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/envd/envdfs"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/process"
)

// compatVersion is the version of the original whose behaviour is served, as
// X-Envd-Version says.
const compatVersion = "0.6.13"

// maxMessage bounds one message from a client in bytes.
const maxMessage = 16 << 20

const (
	bodyTimeout = time.Minute      // Config.BodyTimeout
	afterHangup = 10 * time.Second // Config.AfterHangup
)

// stopGrace is how long streams get to say that the server stops.
const stopGrace = time.Second

// Config of the face. Sandboxes is needed; the rest has defaults.
type Config struct {
	// Sandboxes finds the sandbox of a request. The settings of /init are those of
	// its Default alone.
	Sandboxes *route.Router
	// DefaultUser acts for requests without an Authorization header, until
	// /init names another. Empty: the user tend runs as.
	DefaultUser string
	// DefaultWorkdir is the working directory of processes that name none,
	// until /init names another. Empty: the user's home.
	DefaultWorkdir string
	// Token is needed in X-Access-Token from the start. Empty: /init may set
	// one later, and until then only the guard keeps strangers out.
	Token protocol.Token
	// Secret makes the tokens of the sandboxes. nil: none has one.
	Secret *protocol.Secret
	// Guard refuses requests of foreign web pages while no token is set. Its
	// Protected field is set by New.
	Guard protocol.Guard
	// Store keeps the settings of /init over restarts. nil: they are lost.
	Store Store
	// BodyTimeout is how long a client may take to send the body of a request
	// other than StreamInput. 0: 1 minute.
	BodyTimeout time.Duration
	// AfterHangup is how long a process that does not read has for the input of
	// a StreamInput whose client has left. What it has not taken then is
	// dropped: no client got an answer for it. 0: 10 s.
	AfterHangup time.Duration
	// Version in X-Envd-Version. Empty: that of the original described by
	// docs/protocols/envd.md.
	Version string
	// Log gets one line for each request that failed in the server. nil: none.
	Log *slog.Logger
}

// Face serves the process half of envd's protocol.
type Face struct {
	sandboxes *route.Router
	secret    *protocol.Secret
	searching chan struct{} // holds one value while a sandbox is looked for by a signature
	searches  atomic.Int32  // how many look for one, or wait for their turn
	settings  *settings
	guard     protocol.Guard
	version   string
	log       *slog.Logger
	errors    *connect.ErrorWriter
	machine   machine
	rpc       http.Handler // generic Connect, gRPC and gRPC-Web
	fed       fedProcesses

	bodyTimeout, afterHangup time.Duration

	ctx     context.Context // ends with Close; parent of the streams, which outlive their requests
	cancel  context.CancelCauseFunc
	streams sync.WaitGroup // on connections that were taken over
	taken   atomic.Int64   // how many
	hangups hangups
}

// New returns the face. Close it when the server has stopped.
func New(c Config) (*Face, error) {
	if c.Sandboxes == nil {
		return nil, &process.InvalidError{Field: "sandboxes", Reason: "are missing; the face needs to know where processes start"}
	}
	s, err := newSettings(&c)
	if err != nil {
		return nil, err
	}
	f := &Face{sandboxes: c.Sandboxes, secret: c.Secret, searching: make(chan struct{}, 1), settings: s, guard: c.Guard,
		version: cmp.Or(c.Version, compatVersion), log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), errors: connect.NewErrorWriter(),
		bodyTimeout: cmp.Or(c.BodyTimeout, bodyTimeout), afterHangup: cmp.Or(c.AfterHangup, afterHangup)}
	f.guard.Protected = func() bool { return s.get().AccessToken.Set() }
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	_, f.rpc = processconnect.NewProcessHandler(&service{f}, connect.WithReadMaxBytes(maxMessage), connect.WithRecover(f.recovered),
		connect.WithCodec(protocol.ProtoCodec{}), connect.WithCodec(jsonCodec{"json"}), connect.WithCodec(jsonCodec{"json; charset=utf-8"}))
	return f, nil
}

var (
	_ module.Router   = (*Face)(nil)
	_ module.Streamer = (*Face)(nil)
	_ module.Reporter = (*Face)(nil)
	_ io.Closer       = (*Face)(nil)
)

// Name implements [module.Part].
func (f *Face) Name() string { return "envd" }

// Routes implements [module.Router].
func (f *Face) Routes() (routes []module.Route) {
	for path, h := range map[string]http.HandlerFunc{
		processconnect.ProcessStartProcedure:       f.serveStart,
		processconnect.ProcessConnectProcedure:     f.serveConnect,
		processconnect.ProcessSendInputProcedure:   f.serveSendInput,
		processconnect.ProcessStreamInputProcedure: f.serveStreamInput,
		processconnect.ProcessSendSignalProcedure:  f.serveSendSignal,
		processconnect.ProcessCloseStdinProcedure:  f.serveCloseStdin,
		processconnect.ProcessUpdateProcedure:      f.serveUpdate,
		"/process.Process/":                        f.serveRPC,
	} {
		routes = append(routes, module.Route{Pattern: path, Handler: f.Wrap(h), Access: module.Own, Body: bodyOf,
			OwnDeadline: true, Inside: true})
	}
	for path, h := range map[string]http.HandlerFunc{
		"POST /init":   f.init,
		"GET /envs":    f.envs,
		"GET /metrics": f.metrics,
		// Preflights of the REST paths end in the CORS handler.
		"OPTIONS /health": http.NotFound, "OPTIONS /init": http.NotFound, "OPTIONS /envs": http.NotFound, "OPTIONS /metrics": http.NotFound,
	} {
		routes = append(routes, module.Route{Pattern: path, Handler: f.Wrap(h), Access: module.Own, Inside: true})
	}
	return append(routes, module.Route{Pattern: "GET /health", Handler: f.healthOf(), Access: module.Open, Inside: true})
}

// bodyOf: input is held as it comes, all else is decoded.
func bodyOf(path string) module.Body {
	switch path {
	case processconnect.ProcessStreamInputProcedure:
		return module.Messages
	case processconnect.ProcessSendInputProcedure:
		return module.Data
	}
	return module.Fields
}

// crossOrigin answers browsers as the original does (envd.md §1): any origin, any
// header, and preflights end here with 204. The guard stands before it and decides
// which pages may call.
var crossOrigin = cors.New(cors.Options{
	AllowedOrigins: []string{"*"},
	AllowedMethods: []string{"HEAD", "GET", "POST", "PUT", "PATCH", "DELETE"},
	AllowedHeaders: []string{"*"},
	ExposedHeaders: []string{"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin", "Location", "Cache-Control",
		"X-Content-Type-Options", headerID, headerOffset, envdfs.HeaderOwner},
	MaxAge: 7200, // seconds
})

// Wrap puts what stands in front of every path of this protocol around h: the
// guard against foreign web pages, CORS, the sandbox, its access token, the user. The
// filesystem half of the protocol is wrapped with it, too.
func (f *Face) Wrap(h http.Handler) http.Handler {
	return f.guard.Wrap(crossOrigin.Handler(f.routed(f.authorize(f.authenticate(h)))))
}

// authorize asks for the access token once one is needed, before anything of the
// body is read. /files is excepted as its own signatures stand in for the
// token, and a short POST /init as its body names the token: see
// mayProveInBody. A sandbox that is asleep is woken here, once the caller is known to
// be allowed.
func (f *Face) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens, target := f.Tokens(r), targetOf(r.Context())
		switch {
		case open(r):
			if target != nil && target.Asleep && r.URL.Path != "/files" {
				refuseSandbox(w, &sandboxError{SandboxID: string(target.ID), Message: noSandbox})
				return
			}
		case len(tokens) > 0 && !protocol.MatchesAny(tokens, protocol.AccessToken(r)):
			restError(w, http.StatusUnauthorized, "unauthorized access, please provide a valid access token or method signing if supported")
			return
		case target != nil:
			if err := target.Awake(r.Context()); err != nil {
				f.log.Warn("sandbox not woken", "face", "envd", "id", target.ID, "err", err)
				refuseSandbox(w, &sandboxError{SandboxID: string(target.ID), Message: noSandbox})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Tokens are those of which a request has to show one; none: it needs none.
func (f *Face) Tokens(r *http.Request) []protocol.Token {
	token, t := f.settings.get().AccessToken, targetOf(r.Context())
	switch {
	case t != nil:
		return f.secret.Accepted(token, string(t.ID), t.Info.Notes[protocol.NoteSecure] != "")
	case token.Set():
		return []protocol.Token{token}
	}
	return nil
}

func open(r *http.Request) bool {
	switch r.URL.Path {
	case "/health":
		return r.Method == http.MethodGet
	case "/init":
		return mayProveInBody(r)
	case "/files":
		return signable(r)
	}
	return false
}

// signable reports whether a request for /files may be signed in place of a token.
func signable(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodPost
}

// AccessToken is the token of this moment.
func (f *Face) AccessToken() protocol.Token { return f.settings.get().AccessToken }

// Streams implements [module.Streamer]: how many streams there are on connections that were taken over.
func (f *Face) Streams() int { return int(f.taken.Load()) }

// Status implements [module.Reporter].
func (f *Face) Status() map[string]string {
	facts := map[string]string{"version": f.version, "streams": strconv.Itoa(f.Streams())}
	var hosts []string
	for _, d := range f.sandboxes.Domains {
		hosts = append(hosts, fmt.Sprintf("%d-ID.%s", port, d))
	}
	if len(hosts) > 0 {
		facts["hosts"] = strings.Join(hosts, " ")
	}
	return facts
}

// Close ends the streams with "unavailable", so that clients connect again,
// and returns when they have ended. Call it before or while the HTTP server
// shuts down; the processes go on.
func (f *Face) Close() error {
	f.cancel(errStopping)
	timer := time.AfterFunc(stopGrace, f.hangups.closeAll)
	f.streams.Wait()
	timer.Stop()
	f.hangups.stop()
	return nil
}

// recovered turns a panic in one request into an error of that request.
func (f *Face) recovered(_ context.Context, s connect.Spec, _ http.Header, p any) error {
	f.log.Error("request panicked", "face", "envd", "rpc", s.Procedure, "panic", p)
	return errorf(connect.CodeInternal, "a fault in the server ended this request; the processes are not affected")
}
