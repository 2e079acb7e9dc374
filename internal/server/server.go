package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/lib/home"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/server/metrics"
)

// Server is one server role. Create it with New and run it once.
type Server struct {
	cfg     Config
	limits  Limits
	log     *slog.Logger
	metrics *metrics.Metrics
	conns   connLimit
	budget  *budget.Budget // of what is held for clients
	active  atomic.Int64   // requests that are being served
	routes  routeTable
	secrets []func(path string) bool // Route.Secret of all routes
	hosters []module.Hoster
	handler http.Handler
	logins  protocol.Logins
	listens []*protocol.Listener
}

// New checks the configuration and mounts the parts. It does not serve yet.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, limits: cfg.Limits.withDefaults(descriptorLimit()),
		log: cfg.Log, metrics: cfg.Metrics, budget: cfg.Budget,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.metrics == nil {
		s.metrics = metrics.New(metrics.Config{Manager: cfg.Manager, Version: cfg.Version})
	}
	if s.budget == nil {
		s.budget = budget.New(InFlight)
	}
	s.conns.max = s.limits.Connections
	mux, err := s.mount()
	if err != nil {
		return nil, err
	}
	served := s.recovered(noWorker(s.limited(s.paced(s.admit(s.guarded(s.dispatch(mux)))))))
	if cfg.Around != nil {
		served = cfg.Around(served)
	}
	s.handler = s.routed(mux, s.counted(served))
	return s, nil
}

// Run serves until ctx ends, then drains: it accepts no new connections, asks streams
// to end, gives running requests Limits.Drain to finish and, after they are cut off,
// Limits.CutOff to return. It then returns nil, or the error of a listener or part that
// failed. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	// Requests outlive ctx by the time of the drain; then they are told to end.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var wg sync.WaitGroup
	defer wg.Wait()
	runners := s.runners()
	broken := make(chan error, len(s.cfg.Listeners)+len(s.cfg.TLS.Listeners)+len(runners))
	// The runners end with the HTTP servers, for whatever reason those end.
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	for _, run := range runners {
		wg.Go(func() {
			if err := run(beside); err != nil {
				broken <- err
			}
		})
	}
	servers := make([]*http.Server, 0, len(s.cfg.Listeners)+len(s.cfg.TLS.Listeners))
	serve := func(inner net.Listener, over func(*http.Server)) {
		l := protocol.NewListener(inner)
		s.listens = append(s.listens, l)
		srv := s.httpServer(requests, l)
		over(srv)
		servers = append(servers, srv)
		wg.Go(func() {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				broken <- fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
		})
	}
	for _, l := range s.cfg.Listeners {
		serve(l, func(*http.Server) {})
	}
	for _, l := range s.cfg.TLS.Listeners {
		serve(tls.NewListener(l, s.cfg.Certificates), s.overTLS)
	}
	if s.cfg.Doors != nil {
		servers = append(servers, s.innerServer(requests, &wg))
	}
	if s.cfg.Door != nil {
		servers = append(servers, s.doorServer(requests, &wg))
	}
	err := s.shareSockets()
	if err == nil {
		err = s.announce()
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-broken:
		}
	}
	began := time.Now()
	if s.cfg.Final != nil && s.cfg.Final() {
		s.farewell()
	}
	end()
	if s.cfg.Door != nil {
		if err := s.cfg.Door.Close(); err != nil {
			s.log.Warn("the page's port is not closed", slog.Any("err", err))
		}
	}
	s.drain(servers, cut)
	if s.cfg.Doors != nil { // none is served after the wait for those that were
		s.cfg.Doors.Serve(func(_ driver.ID, l net.Listener) { _ = l.Close() })
	}
	s.log.Info("server stopped", slog.Int64("drained_ms", time.Since(began).Milliseconds()))
	return err
}

// runners returns the work in the background of the driver and the parts.
func (s *Server) runners() (all []func(context.Context) error) {
	if d, ok := s.cfg.Driver.(driver.Runner); ok {
		all = append(all, d.Run)
	}
	for _, p := range s.cfg.Parts {
		if r, ok := p.(module.Runner); ok {
			all = append(all, r.Run)
		}
	}
	return all
}

// httpServer returns the server of one listener: HTTP/1.1 and HTTP/2 by prior
// knowledge (h2c) on the same port.
func (s *Server) httpServer(requests context.Context, l *protocol.Listener) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	srv := &http.Server{
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
			// A handler does not read its request while a process does not read its
			// input. Those bytes count against the connection, which must have room
			// for many such requests beside the others.
			MaxReceiveBufferPerStream:     streamBuffer,
			MaxReceiveBufferPerConnection: 32 << 20,
		},
		BaseContext: func(net.Listener) context.Context { return requests },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			ctx = s.withPeer(l.ConnContext(ctx, c), c)
			return s.conns.note(ctx, c, s.callerOf(ctx))
		},
		ConnState: s.conns.state,
		ErrorLog:  log.New(errorLog{s.log}, "", 0),
	}
	protocol.H2C(srv)
	return srv
}

// shareSockets gives the unix sockets to the operators' group. Those that systemd has made are as
// their unit says.
func (s *Server) shareSockets() error {
	if s.cfg.Group <= 0 {
		return nil
	}
	for _, l := range s.cfg.Listeners {
		a, ok := l.Addr().(*net.UnixAddr)
		if !ok || !filepath.IsAbs(a.Name) {
			continue
		}
		err := os.Chown(a.Name, -1, s.cfg.Group)
		if err == nil {
			err = os.Chmod(a.Name, 0o660)
		}
		if dir := filepath.Dir(a.Name); err == nil && dir == home.RunDir {
			if err = os.Chown(dir, -1, s.cfg.Group); err == nil {
				err = os.Chmod(dir, 0o750)
			}
		}
		if err != nil {
			return fmt.Errorf("give the socket to the group: %w", err)
		}
	}
	return nil
}

// announce writes the port file and the log line that say where the server is.
func (s *Server) announce() error {
	urls := make([]string, 0, len(s.cfg.Listeners))
	for _, l := range s.cfg.Listeners {
		urls = append(urls, URL(l.Addr()))
	}
	if s.cfg.TLS.Mode != "" {
		urls = append(urls, "https://api."+s.cfg.Authority())
	}
	for path, url := range map[string]string{s.cfg.PortFile: FindURL(s.cfg.Listeners, "tcp"),
		s.cfg.URLFile: FindURL(s.cfg.Listeners, "unix")} {
		if path == "" {
			continue
		}
		if err := atomicfile.File(path, []byte(url+"\n"), 0o644); err != nil {
			return fmt.Errorf("write the URL: %w", err)
		}
	}
	s.log.Info("server ready", slog.Any("urls", urls), slog.Int("pid", os.Getpid()), slog.String("version", s.cfg.Version),
		slog.Bool("token", s.cfg.Token != ""))
	return nil
}

// FindURL returns the URL for clients: that of the first listener of that network,
// otherwise of the first listener.
func FindURL(listeners []net.Listener, network string) string {
	for _, l := range listeners {
		if l.Addr().Network() == network {
			return URL(l.Addr())
		}
	}
	return URL(listeners[0].Addr())
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

// farewellTime bounds how long streams may take to report how their processes ended.
const farewellTime = time.Second

// farewell lets the streams end by themselves, with the ends of their
// processes. Those that have none, and those of clients that do not read, are
// not waited for.
func (s *Server) farewell() {
	await(farewellTime, func() bool { return s.active.Load() == 0 && s.streams() == 0 })
}

// await waits until something is so, but no longer than a time. It returns whether it is.
func await(most time.Duration, so func() bool) bool {
	late := time.After(most)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-late:
			return so()
		}
	}
	return true
}

// streams is how many streams there are on connections that parts took over.
func (s *Server) streams() (n int) {
	for _, p := range s.cfg.Parts {
		if p, ok := p.(module.Streamer); ok {
			n += p.Streams()
		}
	}
	return n
}

// drain ends all servers: politely for a time, then by closing.
func (s *Server) drain(servers []*http.Server, cut context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limits.Drain)
	defer cancel()
	var wg sync.WaitGroup
	// The parts end their streams in their own words. Some are on connections
	// that they took over, which the HTTP servers know nothing of.
	wg.Go(s.closeParts)
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
	// The process ends with Run. Requests that were cut off first write down what they
	// have used, and let go of what they hold.
	cut()
	if !await(s.limits.CutOff, func() bool { return s.active.Load() == 0 }) {
		s.log.Warn("requests that were cut off have not ended", slog.Int64("requests", s.active.Load()))
	}
}

func (s *Server) closeParts() {
	for _, p := range s.cfg.Parts {
		if c, ok := p.(io.Closer); ok {
			if err := c.Close(); err != nil {
				s.log.Warn("part not closed", slog.String("part", p.Name()), slog.Any("err", err))
			}
		}
	}
}
