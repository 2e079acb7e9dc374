package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/server/metrics"
	"github.com/tend-run/tend/internal/server/operator"
	"github.com/tend-run/tend/internal/server/parts"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// served is a running server with its addresses.
type served struct {
	*Server
	dir         string
	tcp, socket string
	stop        func() error // ends it and returns what Run returned
}

// serve runs a server on a loopback port and a unix socket.
func serve(t *testing.T, change func(*Config)) *served {
	t.Helper()
	dir := t.TempDir()
	tcp := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	socket := filepath.Join(dir, "tend.sock")
	unixListener := proctest.Value(net.Listen("unix", socket))(t)
	cfg := Config{
		Settings: operator.Settings{
			Listeners: []net.Listener{tcp, unixListener},
			PortFile:  filepath.Join(dir, "port"), URLFile: filepath.Join(dir, "url"), Version: "v0-test",
		},
		Manager: testkeeper.New(t), Limits: Limits{Drain: 200 * time.Millisecond},
	}
	if change != nil {
		change(&cfg)
	}
	s := assemble(t, dir, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	ended := false
	stop := func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { stop() })
	return &served{Server: s, dir: dir, tcp: "http://" + tcp.Addr().String(), socket: socket, stop: stop}
}

// providersFile of the gateway is read when it is used; a test that uses it writes it.
const providersFile = "providers.yaml"

// assemble makes a server as the daemon has it: with its driver and its parts.
func assemble(t *testing.T, dir string, cfg Config) *Server {
	t.Helper()
	cfg.Metrics = metrics.New(metrics.Config{Manager: cfg.Manager, Version: cfg.Version})
	cfg.StateDir, cfg.Providers = dir, filepath.Join(dir, providersFile)
	set := proctest.Value(parts.Open(parts.Config{
		Settings: cfg.Settings, Manager: cfg.Metrics.Manager(), Trusted: Trusted, Budget: cfg.Budget,
	}))(t)
	if cfg.Session == nil {
		cfg.Session = set.Session
	}
	if cfg.Session == nil {
		cfg.Session = set.Session
	}
	cfg.Driver, cfg.Parts, cfg.TokenNow = set.Driver, append(set.Parts, cfg.Parts...), set.Token
	s := proctest.Value(New(cfg))(t)
	return s
}

// client returns a client of one protocol ("h1" or "h2") over one network.
func (s *served) client(t *testing.T, protocol, network string) *http.Client {
	t.Helper()
	var p http.Protocols
	p.SetHTTP1(protocol == "h1")
	p.SetUnencryptedHTTP2(protocol == "h2")
	tr := &http.Transport{Protocols: &p}
	if network == "unix" {
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.socket)
		}
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// get requests a path and returns the status and the body.
func get(t *testing.T, c *http.Client, url string, header map[string]string) (int, string) {
	t.Helper()
	return do(t, c, http.MethodGet, url, "", header)
}

func do(t *testing.T, c *http.Client, method, url, body string, header map[string]string) (int, string) {
	t.Helper()
	req := proctest.Value(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	for k, v := range header {
		req.Header.Set(k, v)
		if k == "Host" {
			req.Host = v
		}
	}
	res := proctest.Value(c.Do(req))(t)
	defer res.Body.Close()
	text := proctest.Value(io.ReadAll(res.Body))(t)
	return res.StatusCode, string(text)
}

func TestEveryListenerSpeaksHTTP1AndHTTP2(t *testing.T) {
	s := serve(t, nil)
	for _, protocol := range []string{"h1", "h2"} {
		for _, network := range []string{"tcp", "unix"} {
			c := s.client(t, protocol, network)
			for path, want := range map[string]int{"/-/healthz": 200, "/-/readyz": 200, "/-/metrics": 200, "/health": 204, "/nothing": 404} {
				if got, body := get(t, c, s.tcp+path, nil); got != want {
					t.Errorf("%s over %s: %s is %d %q; want %d", protocol, network, path, got, body, want)
				}
			}
		}
	}
}

func TestPortFileHoldsTheURLOnceItServes(t *testing.T) {
	s := serve(t, nil)
	get(t, s.client(t, "h1", "tcp"), s.tcp+"/-/readyz", nil)
	proctest.Eventually(t, "the file url is there", func() bool { _, err := os.Stat(filepath.Join(s.dir, "url")); return err == nil })
	proctest.Eventually(t, "the file port is there", func() bool { _, err := os.Stat(filepath.Join(s.dir, "port")); return err == nil })
	for name, want := range map[string]string{"port": s.tcp + "\n", "url": "unix://" + s.socket + "\n"} {
		got, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestURLOfAListenerOnAllAddressesIsLoopback(t *testing.T) {
	for want, addr := range map[string]net.Addr{
		"http://127.0.0.1:80":    &net.TCPAddr{IP: net.IPv4zero, Port: 80},
		"http://127.0.0.1:81":    &net.TCPAddr{IP: net.IPv6zero, Port: 81},
		"http://[::1]:82":        &net.TCPAddr{IP: net.IPv6loopback, Port: 82},
		"unix:///run/tend.sock":  &net.UnixAddr{Name: "/run/tend.sock", Net: "unix"},
		"http://192.168.1.2:443": &net.TCPAddr{IP: net.IPv4(192, 168, 1, 2), Port: 443},
	} {
		if got := URL(addr); got != want {
			t.Errorf("URL(%v) = %q; want %q", addr, got, want)
		}
	}
}

func TestRunEndsWithinTheDrainAlthoughAStreamIsOpen(t *testing.T) {
	s := serve(t, nil)
	body := `{"process":{"cmd":"sleep","args":["1000"]}}`
	frame := append([]byte{0, 0, 0, 0, byte(len(body))}, body...)
	req := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", s.tcp+"/process.Process/Start", strings.NewReader(string(frame))))(t)
	req.Header.Set("Content-Type", "application/connect+json")
	res := proctest.Value(s.client(t, "h2", "tcp").Do(req))(t)
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil {
		t.Fatalf("the stream did not begin: %v", err)
	}
	if err := s.stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	io.Copy(io.Discard, res.Body) // ends, since the server has
}

func TestABrokenListenerEndsRunWithItsError(t *testing.T) {
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := assemble(t, t.TempDir(), Config{Manager: testkeeper.New(t), Settings: operator.Settings{Listeners: []net.Listener{l}}})
	l.Close()
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Run on a closed listener returned %v", err)
	}
}

func TestAPanicEndsOneRequest(t *testing.T) {
	s := serve(t, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/boom", func(http.ResponseWriter, *http.Request) { panic("a bug") })
	mux.HandleFunc("/half", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half of the answ")
		http.NewResponseController(w).Flush()
		panic("a bug")
	})
	mux.Handle("/", s.handler)
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	srv := &http.Server{Handler: s.recovered(mux), ConnContext: s.withPeer}
	go srv.Serve(l)
	defer srv.Close()
	base := "http://" + l.Addr().String()
	c := s.client(t, "h1", "tcp")
	for _, path := range []string{"/boom", "/half"} {
		req := proctest.Value(http.NewRequestWithContext(t.Context(), "GET", base+path, nil))(t)
		res, err := c.Do(req)
		if err != nil {
			continue // cut off before the header
		}
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil {
			t.Errorf("%s: the client takes the answer for whole", path)
		}
	}
	if got, _ := get(t, c, base+"/-/healthz", nil); got != 200 {
		t.Errorf("after the panics healthz is %d", got)
	}
	if _, text := get(t, c, base+"/-/metrics", nil); !strings.Contains(text, "tend_http_panics_total 2") {
		t.Error("the panics are not counted")
	}
}

func TestSettingsOfInitOutliveTheServerAndAreSecret(t *testing.T) {
	s := serve(t, nil)
	c := s.client(t, "h1", "tcp")
	if got, body := do(t, c, "POST", s.tcp+"/init", `{"accessToken":"k","defaultUser":"root"}`, nil); got != 204 {
		t.Fatalf("/init is %d %s", got, body)
	}
	fi, err := os.Stat(filepath.Join(s.dir, "envd/settings.json"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("the settings are %v, %v; want mode 0600", fi, err)
	}
	again := assemble(t, s.dir, Config{Manager: s.cfg.Manager, Settings: operator.Settings{Listeners: s.cfg.Listeners}})
	defer again.closeParts()
	if !again.token().Matches("k") {
		t.Error("a new server on the same directory does not ask for the token")
	}
}

func TestSlowAndOversizeHeadersAreEnded(t *testing.T) {
	dial := func(t *testing.T, change func(*Config)) net.Conn {
		conn := proctest.Value(net.Dial("tcp", strings.TrimPrefix(serve(t, change).tcp, "http://")))(t)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	t.Run("a header that never ends", func(t *testing.T) {
		conn := dial(t, func(c *Config) { c.Limits.HeaderTimeout = 50 * time.Millisecond })
		fmt.Fprintf(conn, "GET /-/healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		// Either an answer that says so or just the end; but the end comes.
		if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("the connection ended with %v", err)
		}
	})
	t.Run("a header that is too large", func(t *testing.T) {
		conn := dial(t, func(c *Config) { c.Limits.HeaderBytes = 4 << 10 })
		fmt.Fprintf(conn, "GET /-/healthz HTTP/1.1\r\nHost: localhost\r\nX-Big: %s\r\n\r\n", strings.Repeat("x", 16<<10))
		res := proctest.Value(http.ReadResponse(bufio.NewReader(conn), nil))(t)
		if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %d; want 431", res.StatusCode)
		}
	})
}

func TestLimitsAreToldInTheirOwnWords(t *testing.T) {
	t.Run("requests", func(t *testing.T) {
		s := serve(t, func(c *Config) { c.Limits.Requests = 1 })
		in, hold := make(chan struct{}), make(chan struct{})
		h := s.limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(in); <-hold }))
		l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
		srv := &http.Server{Handler: h}
		go srv.Serve(l)
		defer srv.Close()
		defer close(hold)
		go http.Get("http://" + l.Addr().String())
		<-in
		checkRefused(t, s.client(t, "h1", "tcp"), "http://"+l.Addr().String(), "1 requests and streams")
	})
	t.Run("connections", func(t *testing.T) {
		s := serve(t, func(c *Config) { c.Limits.Connections = 2 })
		for range 2 {
			if got, _ := get(t, s.client(t, "h1", "tcp"), s.tcp+"/-/healthz", nil); got != 200 {
				t.Fatalf("a connection within the limit is answered %d", got)
			}
		}
		checkRefused(t, s.client(t, "h1", "tcp"), s.tcp+"/-/healthz", "2 connections")
	})
	t.Run("connections of those who may not call", func(t *testing.T) {
		s := serve(t, func(c *Config) { c.Limits.Connections = 32 })
		come := func(kind caller, n, most int) {
			for i := range n {
				ctx := s.conns.note(t.Context(), &net.TCPConn{}, kind)
				if limit, over := ctx.Value(overKey{}).(int); over != (i >= most) || over && limit != most {
					t.Fatalf("of the kind %d, after %d, it is over the limit: %v (%d)", kind, i, over, limit)
				}
			}
		}
		come(stranger, 4, 4)
		come(onTCP, 24, 24)
		for range slack {
			for _, kind := range []caller{stranger, onTCP} {
				if _, over := s.conns.note(t.Context(), &net.TCPConn{}, kind).Value(overKey{}).(int); !over {
					t.Errorf("of the kind %d there is still a place", kind)
				}
			}
		}
		if got, text := get(t, s.client(t, "h1", "unix"), "http://tend/-/healthz", nil); got != 200 {
			t.Errorf("the owner's socket is closed by others: %d %s", got, text)
		}
	})
}

func checkRefused(t *testing.T, c *http.Client, url, text string) {
	t.Helper()
	status, body := get(t, c, url, nil)
	var said struct{ Code, Message string }
	if err := json.Unmarshal([]byte(body), &said); err != nil {
		t.Fatalf("the refusal %q is no JSON: %v", body, err)
	}
	if status != http.StatusServiceUnavailable || said.Code != "unavailable" || !strings.Contains(said.Message, text) {
		t.Errorf("refused with %d %+v; want 503 unavailable with %q", status, said, text)
	}
}

func TestBodiesThatStopArrivingAreEnded(t *testing.T) {
	s := serve(t, func(c *Config) { c.Limits.BodyPause, c.Limits.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond })
	for _, path := range []string{
		"/tend.v1.ProcessService/Start", "/tend.v1.ProcessService/Read", "/init", "/files?path=/tmp/never-there",
		"/files/compose", "/filesystem.Filesystem/Stat", "/no/such/path",
	} {
		for _, kind := range []string{"application/json", "application/connect+json"} {
			t.Run(path+" in "+kind, func(t *testing.T) {
				t.Parallel()
				conn := proctest.Value(net.Dial("tcp", strings.TrimPrefix(s.tcp, "http://")))(t)
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(2 * time.Minute))
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\n{", path, kind)
				// An answer, and the end of the connection.
				if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
					t.Errorf("the connection ended with %v", err)
				}
			})
		}
	}
}
