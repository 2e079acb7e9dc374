package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/server/operator"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"golang.org/x/sys/unix"
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

func TestASessionStandsForTheTokenOnRoutesThatTakeIt(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Token, c.Session = "s3cret", func(r *http.Request) module.Login {
			return module.Login{Role: map[string]module.Role{"in": module.Owner, "reads": module.Reader}[r.Header.Get("Tend-Page")]}
		}
	})
	for path, want := range map[string]int{"/tend.v1.ProcessService/Hello": 200, "/process.Process/List": 401} {
		for _, proof := range []string{"in", "out"} {
			if proof == "out" {
				want = 401
			}
			if got, text := do(t, s.client(t, "h1", "tcp"), "POST", s.tcp+path, "{}", map[string]string{"Content-Type": "application/json", "Tend-Page": proof}); got != want {
				t.Errorf("%s with a session %q is %d %s; want %d", path, proof, got, text, want)
			}
		}
	}
}

// otherBody is that of a request which its login is not about.
type otherBody struct{ io.ReadCloser }

func (otherBody) Read([]byte) (int, error) {
	return 0, connect.NewError(connect.CodeUnauthenticated, errors.New("another body"))
}

func TestABodyThatALoginIsNotAboutIsNotObeyed(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Token, c.Session = "s3cret", func(r *http.Request) module.Login {
			switch r.Header.Get("Tend-Page") {
			case "other":
				return module.Login{Role: module.Owner, Body: otherBody{r.Body}}
			case "own":
				return module.Login{Role: module.Owner, Body: r.Body}
			}
			return module.Login{Challenge: `Tend-Page run="1"`}
		}
	})
	c := s.client(t, "h1", "tcp")
	at := filepath.Join(t.TempDir(), "file")
	for _, path := range []string{"/tend.v1.ProcessService/Start", "/tend.v1.FileService/Content?path=" + at} {
		method := "POST"
		if strings.Contains(path, "Content") {
			method = "PUT"
		}
		header := map[string]string{"Content-Type": "application/json", "Tend-Page": "other"}
		got, text := do(t, c, method, s.tcp+path, `{"spec":{"argv":["true"]}}`, header)
		if got != http.StatusUnauthorized || !strings.Contains(text, "another body") {
			t.Errorf("%s is %d %s", path, got, text)
		}
		if _, err := os.Stat(at); err == nil {
			t.Errorf("after %s the file is there", path)
		}
		header["Tend-Page"] = "own"
		if got, text := do(t, c, method, s.tcp+path, `{"spec":{"argv":["true"]}}`, header); got/100 != 2 {
			t.Errorf("%s with its own body is %d %s", path, got, text)
		}
	}
	own := map[string]string{"Content-Type": "application/json", "Tend-Page": "own"}
	if _, text := do(t, c, "POST", s.tcp+"/tend.v1.ProcessService/List", "{}", own); strings.Count(text, `"argv":["true"]`) != 1 {
		t.Errorf("not one process was started: %s", text)
	}
	req := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", s.tcp+"/tend.v1.ProcessService/List", nil))(t)
	res := proctest.Value(c.Do(req))(t)
	res.Body.Close()
	if got := res.Header.Values("WWW-Authenticate"); !slices.Equal(got, []string{`Bearer realm="tend"`, `Tend-Page run="1"`}) {
		t.Errorf("a refusal says %q", got)
	}
}

// A login that only reads is admitted to what its route says is read, and to nothing else:
// deny is the default. Whoever shows the token is not held to it.
func TestALoginThatReadsIsAdmittedToNothingElse(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Token, c.Session = "s3cret", func(r *http.Request) module.Login {
			return module.Login{Role: map[string]module.Role{"reads": module.Reader}[r.Header.Get("Tend-Page")]}
		}
	})
	for path, want := range map[string]int{
		"/tend.v1.ProcessService/Hello": 200, "/tend.v1.ProcessService/List": 200, "/tend.v1.ProcessService/Start": 403, "/tend.v1.AdminService/OpenPage": 403,
		"/tend.v1.ProcessService/NoSuch": 403, "/tend.v1.AdminService/Shutdown": 403, "/process.Process/List": 401, "/-/metrics": 403,
	} {
		header := map[string]string{"Content-Type": "application/json", "Tend-Page": "reads"}
		method := "POST"
		if path == "/-/metrics" {
			method = "GET"
		}
		if got, text := do(t, s.client(t, "h1", "tcp"), method, s.tcp+path, "{}", header); got != want {
			t.Errorf("%s is %d %s; want %d", path, got, text, want)
		}
	}
	both := map[string]string{"Content-Type": "application/json", "Tend-Page": "reads", "Authorization": "Bearer s3cret"}
	if got, text := do(t, s.client(t, "h1", "tcp"), "POST", s.tcp+"/tend.v1.ProcessService/Start", "{}", both); got != 400 {
		t.Errorf("with the token a start without a command is %d %s; want 400", got, text)
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
		{"a page of another port", map[string]string{"Origin": "http://localhost:3000"}, 403},
		{"a page of this server", map[string]string{"Origin": s.tcp}, 200},
		{"no page", nil, 200},
	} {
		for _, path := range []string{"/-/metrics", "/envs"} {
			if got, text := get(t, s.client(t, "h1", "tcp"), s.tcp+path, tt.header); got != tt.want {
				t.Errorf("%s: %s is %d %s; want %d", tt.name, path, got, text, tt.want)
			}
		}
	}
}

// TestAServicePageMayLoadItsParts: it has no origin, and its address is its key.
func TestAServicePageMayLoadItsParts(t *testing.T) {
	s := serve(t, nil)
	for path, want := range map[string]string{
		"/langsmith/box/service/80/~a.b/app.js": "the link's token is not valid",
		"/langsmith/box/service/80/app.js":      "refused while no token is set",
		"/envs?/langsmith/box/service/80/~a.b/": "refused while no token is set",
	} {
		if got, text := get(t, s.client(t, "h1", "tcp"), s.tcp+path, map[string]string{"Origin": "null"}); got != 403 || !strings.Contains(text, want) {
			t.Errorf("%s is %d %s; want %q", path, got, text, want)
		}
	}
}

func TestOnlyOwnUserAndRootMayCallWithoutAToken(t *testing.T) {
	open, insecure := serve(t, nil), serve(t, func(c *Config) { c.Insecure = true })
	token := serve(t, func(c *Config) { c.Token = "s3cret" })
	const elsewhere = 4711
	for _, tt := range []struct {
		name   string
		server *served
		unix   bool
		uid    int
		err    error
		path   string
		want   int
	}{
		{"the same user on the socket", open, true, os.Geteuid(), nil, "/-/healthz", 200},
		{"root on the socket", open, true, 0, nil, "/-/healthz", 200},
		{"somebody else on the socket", open, true, elsewhere, nil, "/-/healthz", 403},
		{"an unknown one on the socket", open, true, os.Geteuid(), errors.ErrUnsupported, "/-/healthz", 403},
		{"somebody else on the socket, with a token", token, true, elsewhere, nil, "/-/healthz", 403},
		{"somebody else on the socket, insecure", insecure, true, elsewhere, nil, "/-/healthz", 403},
		{"the same user on TCP", open, false, os.Geteuid(), nil, "/envs", 200},
		{"root on TCP", open, false, 0, nil, "/envs", 200},
		{"somebody else on TCP", open, false, elsewhere, nil, "/envs", 403},
		{"an unknown one on TCP", open, false, 0, errors.ErrUnsupported, "/envs", 403},
		{"somebody else on TCP, insecure", insecure, false, elsewhere, nil, "/envs", 200},
		{"somebody else on TCP, with a token to show", token, false, elsewhere, nil, "/envs", 401},
		{"root on TCP, with a token to show", token, false, 0, nil, "/envs", 401},
		{"somebody else asks for the health", open, false, elsewhere, nil, "/health", 204},
		{"somebody else asks whether it is ready", open, false, elsewhere, nil, "/-/readyz", 200},
		{"somebody else asks for metrics", open, false, elsewhere, nil, "/-/metrics", 403},
		{"somebody else asks for boxes", open, false, elsewhere, nil, "/v2/sandboxes/boxes", 403},
		{"somebody else asks for a file", open, false, elsewhere, nil, "/files?path=/etc/hostname", 403},
	} {
		p := &peer{unix: tt.unix, ask: func() (int, error) { return tt.uid, tt.err }}
		r := httptest.NewRequest("GET", "http://localhost"+tt.path, nil)
		w := httptest.NewRecorder()
		tt.server.handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, p)))
		if w.Code != tt.want {
			t.Errorf("%s: %d %s; want %d", tt.name, w.Code, w.Body, tt.want)
		}
	}
	// Nothing is known of a request that came over no listener of ours.
	w := httptest.NewRecorder()
	open.handler.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/envs", nil))
	if w.Code != 403 {
		t.Errorf("a request without a connection: %d", w.Code)
	}
}

// TestAnotherUserOnTheLoopbackPort connects as another user, to each face.
func TestAnotherUserOnTheLoopbackPort(t *testing.T) {
	proctest.Root(t)
	s := serve(t, nil)
	for _, protocol := range []string{"h1", "h2"} {
		c := s.client(t, protocol, "tcp")
		tr := c.Transport.(*http.Transport)
		tr.DialContext = func(_ context.Context, network, addr string) (conn net.Conn, err error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // the thread ends with the goroutine
				if err = unix.Setfsuid(65534); err == nil {
					conn, err = net.Dial(network, addr)
				}
			}()
			<-done
			return conn, err
		}
		for path, want := range map[string]int{"/-/healthz": 200, "/health": 204, "/envs": 403, "/files?path=/etc/hostname": 403, "/v2/sandboxes/boxes": 403, "/-/metrics": 403} {
			if got, text := get(t, c, s.tcp+path, nil); got != want {
				t.Errorf("%s %s: %d %s; want %d", protocol, path, got, text, want)
			}
		}
		got, text := do(t, c, "POST", s.tcp+"/tend.v1.ProcessService/Hello", "{}", map[string]string{"Content-Type": "application/json"})
		if got != 403 || !strings.Contains(text, "you are user 65534") || !strings.Contains(text, "--token-file") {
			t.Errorf("%s: %d %s", protocol, got, text)
		}
	}
}

// TestMembersOfTheGroupMayCall: by its socket alone, with the group as the first one or another.
func TestMembersOfTheGroupMayCall(t *testing.T) {
	proctest.Root(t)
	const group, other = 4321, 4322
	s := serve(t, func(c *Config) { c.Group = group })
	for _, dir := range []string{s.dir, filepath.Dir(s.dir)} {
		proctest.Must(t, os.Chmod(dir, 0o711))
	}
	var st unix.Stat_t
	proctest.Eventually(t, "the socket is the group's", func() bool {
		return unix.Stat(s.socket, &st) == nil && st.Gid == group && st.Mode&0o777 == 0o660
	})
	for _, tt := range []struct {
		name, network string
		first         int
		more          []uint32
		want          int
	}{
		{"its first group", "unix", group, nil, 200},
		{"another of its groups", "unix", other, []uint32{other, group}, 200},
		{"one of many", "unix", other, append(make([]uint32, 300), group), 200},
		{"no group of its", "unix", other, []uint32{other}, 0},
		{"by TCP", "tcp", group, []uint32{group}, 403},
	} {
		c := s.client(t, "h1", tt.network)
		dial := c.Transport.(*http.Transport).DialContext
		if dial == nil {
			dial = new(net.Dialer).DialContext
		}
		c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // the thread ends with the goroutine
				var first *uint32
				if len(tt.more) > 0 {
					first = &tt.more[0]
				}
				for _, call := range [][4]uintptr{
					{unix.SYS_SETGROUPS, uintptr(len(tt.more)), uintptr(unsafe.Pointer(first))},
					{unix.SYS_SETRESGID, uintptr(tt.first), uintptr(tt.first), uintptr(tt.first)},
					{unix.SYS_SETRESUID, 65534, 65534, 65534},
				} {
					if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
						err = errno
						return
					}
				}
				conn, err = dial(ctx, network, addr)
			}()
			<-done
			return conn, err
		}
		req := proctest.Value(http.NewRequestWithContext(t.Context(), "GET", s.tcp+"/envs", nil))(t)
		res, err := c.Do(req)
		switch {
		case tt.want == 0 && !errors.Is(err, unix.EACCES):
			t.Errorf("%s: %v", tt.name, err)
		case tt.want == 0:
		case err != nil:
			t.Errorf("%s: %v", tt.name, err)
		default:
			res.Body.Close()
			if res.StatusCode != tt.want {
				t.Errorf("%s: %d; want %d", tt.name, res.StatusCode, tt.want)
			}
		}
	}
}

// TestAClientThatLeftIsNobody: its request was read, but the kernel would take
// it for root's.
func TestAClientThatLeftIsNobody(t *testing.T) {
	s := serve(t, nil)
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	c := proctest.Value(net.Dial("tcp", l.Addr().String()))(t)
	proctest.Value(c.Write([]byte("GET /envs HTTP/1.1\r\nHost: localhost\r\n\r\n")))(t)
	c.Close()
	conn := proctest.Value(l.Accept())(t)
	defer conn.Close()
	r := httptest.NewRequest("GET", "http://localhost/envs", nil)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r.WithContext(s.withPeer(r.Context(), conn)))
	if w.Code != 403 {
		t.Errorf("a client that left got %d", w.Code)
	}
}

func TestPeerUIDIsTheKernelsWord(t *testing.T) {
	s := serve(t, nil)
	for _, at := range [][2]string{{"unix", s.dir + "/peer.sock"}, {"tcp", "127.0.0.1:0"}} {
		l := proctest.Value(net.Listen(at[0], at[1]))(t)
		defer l.Close()
		conn := proctest.Value(net.Dial(l.Addr().Network(), l.Addr().String()))(t)
		defer conn.Close()
		served := proctest.Value(l.Accept())(t)
		defer served.Close()
		p := s.withPeer(t.Context(), served).Value(peerKey{}).(*peer)
		if p.err != nil || p.uid != os.Geteuid() || p.unix != (at[0] == "unix") {
			t.Errorf("%s: the peer is %+v; want user %d", at[0], p, os.Geteuid())
		}
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
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	m, here := testkeeper.New(t), operator.Settings{Listeners: []net.Listener{l}}
	for name, cfg := range map[string]Config{
		"no manager":                 {Settings: here},
		"no listener":                {Manager: m},
		"a part that can do nothing": {Manager: m, Settings: here, Parts: []module.Part{named("idle")}},
		"a part without a name":      {Manager: m, Settings: here, Parts: []module.Part{&toy{name: ""}}},
		"two parts with one route":   {Manager: m, Settings: here, Parts: []module.Part{&toy{name: "a"}, &toy{name: "b"}}},
		"a token of two words":       {Manager: m, Settings: operator.Settings{Listeners: here.Listeners, Token: "a b"}},
		"everywhere without a token": {Manager: m, Settings: operator.Settings{Listeners: []net.Listener{everywhere{l}}}},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("New with %s succeeded", name)
		}
	}
}
