package envdfs

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/gen/envd/filesystem/filesystemconnect"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Config says how a Face behaves. Files is needed; the rest has defaults.
type Config struct {
	// Tokens returns the access tokens of which a request has to show one, or be
	// signed with; none: it needs none. They may change: POST /init sets one. nil: none.
	Tokens func(*http.Request) []protocol.Token
	// Wrap puts around every path what the whole protocol shares: CORS, the
	// access token. nil: nothing, and all but /files is open.
	Wrap func(http.Handler) http.Handler
	// Files returns the files of a request's sandbox as a user sees them; "" is the
	// sandbox's own user. An error that is not files.ErrPermission means that there
	// is no such user. Needed.
	Files func(ctx context.Context, user string) (driver.Files, error)
	// DefaultUser returns the user of requests that name none; "" is the
	// sandbox's own. nil: always "".
	DefaultUser func(ctx context.Context) string
	// MaxWatchers bounds the polled watchers, and separately the streams of
	// WatchDir, each of which has one; 0 means 256. One more is refused, and so is one of a
	// sandbox that has its share.
	MaxWatchers int
	// WatcherIdle is how long a polled watcher lives without being asked; 0
	// means an hour.
	WatcherIdle time.Duration
	// MaxEvents bounds the events kept for one watcher; 0 means 10,000.
	MaxEvents int
	// Log gets what no client gets; nil: nothing is logged.
	Log *slog.Logger
}

const (
	defaultMaxWatchers = 256
	defaultWatcherIdle = time.Hour
	// maxMessage bounds the messages of the service: no request needs more
	// than two paths.
	maxMessage = 1 << 20
)

// Face serves the file half of the protocol.
type Face struct {
	cfg      Config
	log      *slog.Logger
	watchers *watchers
	// streams has a place for each WatchDir that may run.
	streams *budget.Budget
	// done ends the streams when the Face is closed.
	done context.Context
	stop context.CancelFunc
}

// New makes a Face. Close it to end its watchers.
func New(cfg Config) *Face {
	if cfg.Tokens == nil {
		cfg.Tokens = func(*http.Request) []protocol.Token { return nil }
	}
	if cfg.Wrap == nil {
		cfg.Wrap = func(h http.Handler) http.Handler { return h }
	}
	if cfg.DefaultUser == nil {
		cfg.DefaultUser = func(context.Context) string { return "" }
	}
	most := cmp.Or(cfg.MaxWatchers, defaultMaxWatchers)
	f := &Face{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		watchers: newWatchers(most, cmp.Or(cfg.WatcherIdle, defaultWatcherIdle)), streams: budget.New(int64(most)),
	}
	f.done, f.stop = context.WithCancel(context.Background())
	return f
}

var (
	_ module.Router = (*Face)(nil)
	_ io.Closer     = (*Face)(nil)
)

// Name implements [module.Part]: this is the other half of envd.
func (f *Face) Name() string { return "envd" }

// Routes implements [module.Router]. What the protocol shares is around paths that
// there are not, too: strangers learn nothing of them.
func (f *Face) Routes() []module.Route {
	mux := http.NewServeMux()
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /files":          answers(f.download), // HEAD, too
		"POST /files":         answers(f.upload),
		"POST /files/compose": answers(f.compose),
		// Preflights end in the CORS handler of Wrap.
		"OPTIONS /files": http.NotFound, "OPTIONS /files/compose": http.NotFound,
	} {
		mux.Handle(pattern, h)
	}
	service, h := filesystemconnect.NewFilesystemHandler(service{f}, connect.WithReadMaxBytes(maxMessage), protocol.Codecs(),
		connect.WithRecover(f.recovered))
	mux.Handle(service, h)
	all := f.cfg.Wrap(mux)
	return []module.Route{
		{Pattern: "/files", Handler: all, Access: module.Own, Body: func(string) module.Body { return module.File }, Inside: true},
		{Pattern: "/files/", Handler: all, Access: module.Own, Inside: true},
		{Pattern: service, Handler: all, Access: module.Own, Inside: true},
	}
}

// recovered turns a panic in one request into an error of that request.
func (f *Face) recovered(_ context.Context, s connect.Spec, _ http.Header, p any) error {
	f.log.Error("request panicked", "face", "envd", "rpc", s.Procedure, "panic", p)
	return connect.NewError(connect.CodeInternal, errors.New("a fault in the server ended this request"))
}

// Close ends all watchers, and with them the streams of WatchDir.
func (f *Face) Close() error {
	f.stop()
	return f.watchers.close()
}
