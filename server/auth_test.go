package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/tend-run/tend/internal/fakeproc"
)

func TestWhoMayCallWithAToken(t *testing.T) {
	s := serve(t, func(c *Config) { c.Token = "s3cret" })
	bearer := map[string]string{"Authorization": "Bearer s3cret"}
	wrong := map[string]string{"Authorization": "Bearer s3cre"}
	access := map[string]string{"X-Access-Token": "s3cret"}
	hello := "/tend.v1.ProcessService/Hello"
	for _, tt := range []struct {
		name, network, method, path string
		header                      map[string]string
		want                        int
	}{
		{"healthz is open", "tcp", "GET", "/-/healthz", nil, 200},
		{"readyz is open", "tcp", "GET", "/-/readyz", nil, 200},
		{"metrics need the token", "tcp", "GET", "/-/metrics", nil, 401},
		{"metrics with it", "tcp", "GET", "/-/metrics", bearer, 200},
		{"the native API needs it", "tcp", "POST", hello, nil, 401},
		{"the native API with a wrong one", "tcp", "POST", hello, wrong, 401},
		{"the native API with it", "tcp", "POST", hello, bearer, 200},
		{"the native API on the socket", "unix", "POST", hello, nil, 200},
		{"administration needs it", "tcp", "POST", "/tend.v1.AdminService/Status", nil, 401},
		{"envd's health is open", "tcp", "GET", "/health", nil, 204},
		{"envd needs its own header", "tcp", "GET", "/envs", nil, 401},
		{"envd takes no bearer token", "tcp", "GET", "/envs", bearer, 401},
		{"envd with it", "tcp", "GET", "/envs", access, 200},
		{"envd's processes need it", "tcp", "POST", "/process.Process/List", nil, 401},
		{"envd's init cannot be used to get in", "tcp", "POST", "/init", nil, 401},
		{"envd's files need it", "tcp", "GET", "/files?path=/etc/passwd", nil, 401},
		{"envd's filesystem needs it", "tcp", "POST", "/filesystem.Filesystem/Stat", nil, 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header := map[string]string{"Content-Type": "application/json"}
			for k, v := range tt.header {
				header[k] = v
			}
			if got, text := do(t, s.client(t, "h1", tt.network), tt.method, s.tcp+tt.path, "{}", header); got != tt.want {
				t.Errorf("%s %s is %d %s; want %d", tt.method, tt.path, got, text, tt.want)
			}
		})
	}
}

func TestATokenSetByInitGuardsTheNativeAPIToo(t *testing.T) {
	s := serve(t, nil)
	c := s.client(t, "h1", "tcp")
	hello := s.tcp + "/tend.v1.ProcessService/Hello"
	json := map[string]string{"Content-Type": "application/json"}
	if got, text := do(t, c, "POST", hello, "{}", json); got != 200 {
		t.Fatalf("before /init it is %d %s", got, text)
	}
	if got, text := do(t, c, "POST", s.tcp+"/init", `{"accessToken":"k"}`, nil); got != 204 {
		t.Fatalf("/init is %d %s", got, text)
	}
	if got, _ := do(t, c, "POST", hello, "{}", json); got != 401 {
		t.Errorf("after /init it is %d without the token; want 401", got)
	}
	json["Authorization"] = "Bearer k"
	if got, _ := do(t, c, "POST", hello, "{}", json); got != 200 {
		t.Errorf("after /init it is %d with the token; want 200", got)
	}
}

func TestForeignWebPagesAreRefusedWithoutAToken(t *testing.T) {
	s := serve(t, nil)
	for _, tt := range []struct {
		name   string
		header map[string]string
		want   int
	}{
		{"DNS rebinding", map[string]string{"Host": "evil.example"}, 403},
		{"a page of another site", map[string]string{"Origin": "https://evil.example"}, 403},
		{"a page of this machine", map[string]string{"Origin": "http://localhost:3000"}, 200},
		{"no page", nil, 200},
	} {
		for _, path := range []string{"/-/metrics", "/envs"} {
			if got, text := get(t, s.client(t, "h1", "tcp"), s.tcp+path, tt.header); got != tt.want {
				t.Errorf("%s: %s is %d %s; want %d", tt.name, path, got, text, tt.want)
			}
		}
	}
}

func TestOnlyOwnUserAndRootMayUseTheSocket(t *testing.T) {
	s := serve(t, nil)
	for _, tt := range []struct {
		name string
		peer peer
		want int
	}{
		{"the same user", peer{uid: os.Geteuid()}, 200},
		{"root", peer{uid: 0}, 200},
		{"somebody else", peer{uid: os.Geteuid() + 4711}, 403},
		{"the kernel would not say", peer{uid: os.Geteuid(), err: errors.ErrUnsupported}, 403},
	} {
		r := httptest.NewRequest("GET", "http://localhost/-/healthz", nil)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, tt.peer)))
		if w.Code != tt.want {
			t.Errorf("%s: %d; want %d", tt.name, w.Code, tt.want)
		}
	}
}

func TestPeerUIDIsTheKernelsWord(t *testing.T) {
	s := serve(t, nil)
	got := make(chan peer, 1)
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(peerKey{}).(peer)
		got <- p
	})
	l, err := net.Listen("unix", s.dir+"/peer.sock")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ConnContext: withPeer}
	go srv.Serve(l)
	defer srv.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if p := <-got; p.err != nil || p.uid != os.Geteuid() {
		t.Errorf("the peer is %+v; want user %d", p, os.Geteuid())
	}
}

func TestCheckListen(t *testing.T) {
	for _, tt := range []struct {
		network, address string
		token, insecure  bool
		allowed          bool
	}{
		{"tcp", "127.0.0.1:0", false, false, true},
		{"tcp", "127.9.8.7:80", false, false, true},
		{"tcp", "[::1]:80", false, false, true},
		{"tcp", "[::ffff:127.0.0.1]:80", false, false, true},
		{"unix", "/run/tend.sock", false, false, true},
		{"tcp", "0.0.0.0:80", false, false, false},
		{"tcp", "[::]:80", false, false, false},
		{"tcp", ":80", false, false, false},
		{"tcp", "192.168.0.1:80", false, false, false},
		{"tcp", "localhost:80", false, false, false}, // a name is not an address
		{"tcp", "0.0.0.0:80", true, false, true},
		{"tcp", "0.0.0.0:80", false, true, true},
	} {
		if err := CheckListen(tt.network, tt.address, tt.token, tt.insecure); (err == nil) != tt.allowed {
			t.Errorf("CheckListen(%q, %q, %v, %v) = %v; want allowed: %v", tt.network, tt.address, tt.token, tt.insecure, err, tt.allowed)
		}
	}
}

// everywhere is a listener that says it listens on all addresses.
type everywhere struct{ net.Listener }

func (everywhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 80} }

func TestNewRefusesWhatCannotBeServed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := fakeproc.New(t)
	for name, cfg := range map[string]Config{
		"no manager":                 {Listeners: []net.Listener{l}, StateDir: t.TempDir()},
		"no listener":                {Manager: m, StateDir: t.TempDir()},
		"no state directory":         {Manager: m, Listeners: []net.Listener{l}},
		"a token of two words":       {Manager: m, Listeners: []net.Listener{l}, StateDir: t.TempDir(), Token: "a b"},
		"everywhere without a token": {Manager: m, Listeners: []net.Listener{everywhere{l}}, StateDir: t.TempDir()},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("New with %s succeeded", name)
		}
	}
}
