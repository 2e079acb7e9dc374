package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/driver/host"
	"github.com/tend-run/tend/face"
	"github.com/tend-run/tend/face/envd"
	"github.com/tend-run/tend/face/envd/envdfs"
	"github.com/tend-run/tend/face/langsmith"
	"github.com/tend-run/tend/internal/replace"
	"github.com/tend-run/tend/metrics"
	"github.com/tend-run/tend/process"
)

// Server is one server role. Make it with New and run it once.
type Server struct {
	cfg     Config
	limits  Limits
	log     *slog.Logger
	metrics *metrics.Metrics
	manager process.Manager // the instrumented one, for the faces
	conns   connLimit
	budget  *face.Budget // of requests in flight
	active  atomic.Int64 // requests that are being served
	handler http.Handler
	// leaving is closed when the server begins to drain: streams that can say
	// so tell their clients to connect again at once.
	leaving   chan struct{}
	envd      *envd.Face
	files     *envdfs.Face
	boxes     *host.Driver
	langsmith *langsmith.Face
	listens   []*face.Listener
}

// New checks the configuration and mounts the faces. It does not serve yet.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, limits: cfg.Limits.withDefaults(descriptorLimit()),
		log: cfg.Log, leaving: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.conns.max = s.limits.Connections
	s.budget = face.NewBudget(s.limits.InFlight)
	s.metrics = metrics.New(metrics.Config{Manager: cfg.Manager, Roles: s.roleMetrics, Version: cfg.Version})
	s.manager = s.metrics.Manager()
	mux := http.NewServeMux()
	if err := s.mount(mux); err != nil {
		return nil, err
	}
	s.handler = s.counted(s.recovered(s.limited(s.paced(s.admit(s.guarded(mux))))))
	return s, nil
}

// Handler serves everything the server serves, without its listeners.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves until ctx ends, then drains: no new connections, streams are told
// to go, running requests get Limits.Drain. It returns nil after that, or the
// error of a listener that broke. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	// Requests outlive ctx by the time of the drain, and no longer.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var wg sync.WaitGroup
	defer wg.Wait()
	broken := make(chan error, len(s.cfg.Listeners)+1)
	// What runs beside the HTTP servers ends with them, whatever ended them.
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if l := s.cfg.Distant; l != nil {
		wg.Go(func() {
			if err := s.serveDistant(beside, l); err != nil {
				broken <- fmt.Errorf("serve distant on %s: %w", l.Addr(), err)
			}
		})
	}
	servers := make([]*http.Server, 0, len(s.cfg.Listeners))
	for _, inner := range s.cfg.Listeners {
		l := face.NewListener(inner)
		s.listens = append(s.listens, l)
		srv := s.httpServer(requests, l)
		servers = append(servers, srv)
		wg.Go(func() {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				broken <- fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
		})
	}
	wg.Go(func() { s.boxes.Run(beside) })
	err := s.announce()
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-broken:
		}
	}
	began := time.Now()
	if s.down() {
		s.farewell()
	}
	end()
	close(s.leaving)
	s.drain(servers, cut)
	s.log.Info("server stopped", slog.Duration("drained", time.Since(began)))
	return err
}

// httpServer returns the server of one listener: HTTP/1.1 and HTTP/2 by prior
// knowledge (h2c) on the same port.
func (s *Server) httpServer(requests context.Context, l *face.Listener) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           s.handler,
		Protocols:         &protocols,
		ReadHeaderTimeout: s.limits.HeaderTimeout,
		IdleTimeout:       s.limits.IdleTimeout,
		MaxHeaderBytes:    s.limits.HeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.limits.StreamsPer,
			// A peer that vanished without a word is found by a ping.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     15 * time.Second,
			// One chunk of output a frame.
			MaxReadFrameSize: 1 << 20,
			// What a request has sent and its handler does not read, because a
			// process does not read its input, counts against the connection:
			// there must be room for many of these beside the others.
			MaxReceiveBufferPerStream:     256 << 10,
			MaxReceiveBufferPerConnection: 32 << 20,
		},
		BaseContext: func(net.Listener) context.Context { return requests },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return s.conns.note(s.withPeer(l.ConnContext(ctx, c), c), c)
		},
		ConnState: s.conns.state,
		ErrorLog:  log.New(errorLog{s.log}, "", 0),
	}
}

// announce writes the port file and the log line that say where the server is.
func (s *Server) announce() error {
	urls := make([]string, 0, len(s.cfg.Listeners))
	for _, l := range s.cfg.Listeners {
		urls = append(urls, URL(l.Addr()))
	}
	for path, url := range map[string]string{s.cfg.PortFile: s.URL("tcp"), s.cfg.URLFile: s.URL("unix")} {
		if path == "" {
			continue
		}
		if err := replace.File(path, []byte(url+"\n"), 0o644); err != nil {
			return fmt.Errorf("write the URL: %w", err)
		}
	}
	s.log.Info("server ready", slog.Any("urls", urls), slog.Int("pid", os.Getpid()), slog.String("version", s.cfg.Version), slog.Bool("token", s.cfg.Token != ""))
	return nil
}

// URL is how clients find the server: the first listener of that network, else
// the first of all.
func (s *Server) URL(network string) string {
	for _, l := range s.cfg.Listeners {
		if l.Addr().Network() == network {
			return URL(l.Addr())
		}
	}
	return URL(s.cfg.Listeners[0].Addr())
}

// URL returns the URL of a listening address: http://host:port, with the
// loopback address for a listener on all addresses, or unix:///path.
func URL(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return "unix://" + a.String()
	}
	host := tcp.IP
	if host.IsUnspecified() || host == nil {
		host = net.IPv4(127, 0, 0, 1)
	}
	return "http://" + net.JoinHostPort(host.String(), fmt.Sprint(tcp.Port))
}

// farewellTime bounds how long clients are told how their processes ended.
const farewellTime = time.Second

// down reports whether the daemon ends for good, and all processes with it: the
// keeper has ended, and left none.
func (s *Server) down() bool {
	if s.cfg.Roles == nil {
		return false
	}
	if roles, err := s.cfg.Roles(); err != nil || roles.Keeper.PID != 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewellTime)
	defer cancel()
	live, err := s.manager.List(ctx, process.Filter{Live: true})
	return err == nil && len(live) == 0
}

// farewell lets the streams end by themselves, with the ends of their
// processes. Those that have none, and those of clients that do not read, are
// not waited for.
func (s *Server) farewell() {
	late := time.After(farewellTime)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.active.Load() > 0 || s.envd.Streams() > 0 || s.langsmith.Streams() > 0 {
		select {
		case <-tick.C:
		case <-late:
			return
		}
	}
}

// drain ends all servers: politely for a time, then by closing.
func (s *Server) drain(servers []*http.Server, cut context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limits.Drain)
	defer cancel()
	var wg sync.WaitGroup
	// The faces end their streams in their own words. Some are on connections
	// that they took over, which the HTTP servers know nothing of.
	wg.Go(func() { s.closeFaces() })
	for _, srv := range servers {
		wg.Go(func() {
			if srv.Shutdown(ctx) != nil {
				cut()
				srv.Close()
			}
		})
	}
	wg.Wait()
	for _, l := range s.listens {
		l.Close()
	}
}

func (s *Server) closeFaces() {
	for _, err := range []error{s.langsmith.Close(), s.envd.Close(), s.files.Close()} {
		if err != nil {
			s.log.Warn("face not closed", slog.Any("err", err))
		}
	}
}

func (s *Server) roleMetrics() map[string]metrics.Role {
	if s.cfg.Roles == nil {
		return nil
	}
	roles, err := s.cfg.Roles()
	if err != nil {
		return nil
	}
	return map[string]metrics.Role{
		"anchor": metrics.Role(roles.Anchor), "keeper": metrics.Role(roles.Keeper), "server": metrics.Role(roles.Server),
	}
}
