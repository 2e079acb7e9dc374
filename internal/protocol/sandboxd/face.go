package sandboxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Settings are what the operator has set.
type Settings struct {
	REST, GRPC net.Listener
	// Root is a directory that is there, absolute, clean and without links.
	Root string
	// MetadataPrefix is of the variables that /v1/metadata has, of those of Environ.
	MetadataPrefix string
	Environ        []string
	// Idle is how long a connection of REST may be idle.
	Idle time.Duration
	// Chunk is the most output of one event, in bytes; 0: 4096.
	Chunk int
}

// Config of the face.
type Config struct {
	Settings
	// Machine is where processes run and files are.
	Machine driver.Access
	// Stopping reports whether the daemon ends for good, and its processes with it.
	Stopping func() bool
	Budget   *budget.Budget
	Log      *slog.Logger
}

// Face is the protocol as a part of the server.
type Face struct {
	cfg      Config
	user     files.User
	metadata map[string]string
	began    time.Time
	ctx      context.Context // ends when the server stops
	stop     context.CancelFunc
	streams  atomic.Int64

	mu      sync.Mutex
	open    map[int32]running // by number; guarded by mu
	last    int32             // the number that was given last; guarded by mu
	counted bool              // last knows what was before; guarded by mu
}

var (
	_ module.Runner   = (*Face)(nil)
	_ module.Reporter = (*Face)(nil)
	_ module.Streamer = (*Face)(nil)
)

// New returns the face. It serves once it runs.
func New(c Config) (*Face, error) {
	user, err := c.Machine.User("")
	if err == nil {
		err = user.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("sandboxd: %w", err)
	}
	c.Chunk = cmp.Or(c.Chunk, defaultChunk)
	f := &Face{cfg: c, user: user, metadata: metadata(c.Environ, c.MetadataPrefix), began: time.Now(), open: map[int32]running{}}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f, nil
}

// Name implements [module.Part].
func (f *Face) Name() string { return "sandboxd" }

// Status implements [module.Reporter].
func (f *Face) Status() map[string]string {
	return map[string]string{"rest": f.cfg.REST.Addr().String(), "grpc": f.cfg.GRPC.Addr().String(), "root": f.cfg.Root,
		"streams": strconv.Itoa(f.Streams())}
}

// Streams implements [module.Streamer]: those of Start, and the calls of Execute.
func (f *Face) Streams() int { return int(f.streams.Load()) }

const (
	headerTimeout = 10 * time.Second // until the headers of a request have come, as the original's
	stopGrace     = time.Second      // for requests to end when the server stops
	defaultChunk  = 4096
)

// Run implements [module.Runner].
func (f *Face) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, f.stop)()
	rest := &http.Server{Handler: f.rest(), ReadHeaderTimeout: headerTimeout, IdleTimeout: f.cfg.Idle}
	grpc := &http.Server{Handler: f.grpc(), ReadHeaderTimeout: headerTimeout, HTTP2: &http.HTTP2Config{
		SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, // a client that vanished leaves its processes
		MaxReceiveBufferPerStream: 256 << 10, MaxReceiveBufferPerConnection: 8 << 20,
	}}
	protocol.H2C(grpc)
	var first, second error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		first = f.serve(ctx, rest, f.cfg.REST)
	})
	wg.Go(func() {
		defer cancel()
		second = f.serve(ctx, grpc, f.cfg.GRPC)
	})
	wg.Wait()
	return errors.Join(first, second)
}

// serve serves until ctx ends.
func (f *Face) serve(ctx context.Context, s *http.Server, l net.Listener) error {
	s.ErrorLog = slog.NewLogLogger(f.cfg.Log.Handler(), slog.LevelDebug)
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		err := s.Shutdown(late)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.Close()
		}
		stopped <- err
	})
	f.cfg.Log.Info("sandboxd ready", slog.String("addr", l.Addr().String()), slog.String("root", f.cfg.Root))
	if err := s.Serve(l); stop() || !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve sandboxd on %s: %w", l.Addr(), err)
	}
	return <-stopped
}

// secrets are in names of variables that are never shown.
var secrets = [...]string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CRED", "KEY", "AUTH", "BEARER", "PRIVATE", "CERT"}

// metadata is what /v1/metadata shows of an environment.
func metadata(environ []string, prefix string) map[string]string {
	shown := map[string]string{}
next:
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		for _, word := range secrets {
			if strings.Contains(strings.ToUpper(name), word) {
				continue next
			}
		}
		shown[name] = value
	}
	return shown
}
