package ports_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/ports"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

const patience = time.Minute

// webArg makes this program a web server that runs in a sandbox; its name follows.
const webArg = "serve-the-web"

const webPort = 8080

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == webArg {
		os.Exit(web(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

// web answers with its name, and with the address of the connection: a connection is
// known again by it. What is sent to /drop is counted and gets no answer.
func web(name string) int {
	var dropped atomic.Int64
	fmt.Fprintln(os.Stderr, http.ListenAndServe(fmt.Sprintf(":%d", webPort), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/drop":
			dropped.Add(1)
			panic(http.ErrAbortHandler)
		case "/dropped":
			fmt.Fprint(w, dropped.Load())
		default:
			fmt.Fprint(w, name, " ", r.RemoteAddr)
		}
	})))
	return 1
}

// server is the part behind a real HTTP server, with sandboxes of the host driver, and
// a program that listens: their ports are the machine's.
type server struct {
	t                                     *testing.T
	url                                   string
	secret                                *protocol.Secret
	driver                                *host.Driver
	public, closed, asleep, stopped, gone string
	port                                  int          // of the program
	later                                 atomic.Int64 // by how many nanoseconds the clock is ahead
}

func serve(t *testing.T, program http.Handler, change ...func(*ports.Config)) *server {
	t.Helper()
	s := &server{t: t, secret: protocol.NewSecret()}
	d, err := host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: testkeeper.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	s.driver = d
	make := func(spec driver.Spec) (driver.Sandbox, string) {
		sandbox, err := d.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		info, err := sandbox.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return sandbox, string(info.ID)
	}
	open := driver.Network{Public: true}
	_, s.public = make(driver.Spec{Network: open})
	_, s.closed = make(driver.Spec{IdleTTL: time.Hour})
	asleep, id := make(driver.Spec{Wake: true})
	stopped, id2 := make(driver.Spec{Network: open})
	gone, id3 := make(driver.Spec{Network: open})
	s.asleep, s.stopped, s.gone = id, id2, id3
	for _, err := range []error{asleep.Stop(t.Context()), stopped.Stop(t.Context()), gone.Destroy(t.Context())} {
		if err != nil {
			t.Fatal(err)
		}
	}
	inside := httptest.NewServer(program)
	s.port = inside.Listener.Addr().(*net.TCPAddr).Port
	c := ports.Config{
		Sandboxes: &route.Router{Driver: d, Default: host.NewMachine(testkeeper.New(t)), Domains: []string{"box.example"}},
		Secret:    s.secret, Token: func() protocol.Token { return "the server's" },
		Now: s.now,
	}
	for _, f := range change {
		f(&c)
	}
	p := ports.New(c)
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, only := p.Hosts(r)
		switch {
		case h != nil:
			h.ServeHTTP(w, r)
		case only:
			fmt.Fprint(w, "envd")
		default:
			fmt.Fprint(w, "the server itself")
		}
	}))
	s.url = outside.URL
	t.Cleanup(func() {
		p.Close()
		outside.CloseClientConnections()
		outside.Close()
		inside.CloseClientConnections()
		inside.Close()
	})
	return s
}

func (s *server) now() time.Time { return time.Now().Add(time.Duration(s.later.Load())) }

// get makes a request; headers are "Name: value".
func (s *server) get(path string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Add(name, value)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res, string(text)
}

// name is the host name of a port of a sandbox.
func name(port int, id string) string {
	return "Host: " + strconv.Itoa(port) + "-" + id + ".box.example"
}

func TestARequestGoesToThePortThatItNames(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.RequestURI)
	}))
	there, own := strconv.Itoa(s.port), s.url[strings.LastIndex(s.url, ":")+1:]
	traffic := "E2b-Traffic-Access-Token: " + string(s.secret.TrafficToken(s.closed))
	for _, tt := range []struct {
		name    string
		path    string
		headers []string
		status  int
		says    string
	}{
		{"a host name", "/a%2Fb?c=d%20e&f", []string{name(s.port, s.public)}, 200, "GET " + there + "-" + s.public + ".box.example /a%2Fb?c=d%20e&f"},
		{"a name of this machine", "/", []string{"Host: " + there + "-" + s.public + ".localhost:49983"}, 200, "GET " + there + "-" + s.public + ".localhost:49983 /"},
		{"headers", "/x", []string{"E2b-Sandbox-Id: " + s.public, "E2b-Sandbox-Port: " + there}, 200, "GET 127.0.0.1"},
		{"no name", "/x", nil, 200, "the server itself"},
		{"a header that names the port alone", "/x", []string{"E2b-Sandbox-Port: " + there}, 200, "the server itself"},
		{"an ID that was made up", "/x", []string{"E2b-Sandbox-Id: debug_sandbox_id", "E2b-Sandbox-Port: " + there}, 200, "the server itself"},
		{"the server's own port", "/x", []string{"Host: " + own + "-" + s.public + ".localhost"}, 508, "the server's own"},
		{"the server's own port by headers", "/x", []string{"E2b-Sandbox-Id: " + s.public, "E2b-Sandbox-Port: " + own}, 508, "the server's own"},
		{"envd's port by host name", "/x", []string{name(49983, s.public)}, 200, "envd"},
		{"envd's port by headers", "/x", []string{"E2b-Sandbox-Id: " + s.public, "E2b-Sandbox-Port: 49983"}, 200, "the server itself"},
		{"a domain before another", "/x", []string{"Host: " + there + "-" + s.public + ".localhost.evil.example"}, 200, "the server itself"},
		{"nobody listens", "/x", []string{name(1, s.public)}, 502, `{"sandboxId":"` + s.public + `","message":"The sandbox is running but port is not open","port":1,"code":502}`},
		{"nobody listens, in a browser", "/x", []string{name(1, s.public), "Accept: text/html,*/*"}, 502, "<h1>The sandbox is running but port is not open</h1>"},
		{"nobody listens, by the name of a browser", "/x", []string{name(1, s.public), "User-Agent: Mozilla/5.0"}, 502, "<title>Closed Port Error</title>"},
		{"a script of a page", "/x", []string{name(1, s.public), "User-Agent: Mozilla/5.0", "Accept: application/json"}, 502, `"port":1`},
		{"one that is gone", "/x", []string{name(s.port, s.gone)}, 502, "The sandbox was not found"},
		{"one that is stopped", "/x", []string{name(s.port, s.stopped)}, 502, "The sandbox was not found"},
		{"nobody", "/x", []string{name(s.port, string(driver.NewID()))}, 502, "The sandbox was not found"},
		{"what is no ID", "/x", []string{name(s.port, "x_y")}, 502, "The sandbox was not found"},
		{"a closed one", "/x", []string{name(s.port, s.closed)}, 403, "e2b-traffic-access-token"},
		{"a closed one, with its token", "/x", []string{name(s.port, s.closed), traffic}, 200, "GET"},
		{"a closed one, with another's token", "/x", []string{name(s.port, s.closed), "E2b-Traffic-Access-Token: " + string(s.secret.TrafficToken(s.public))}, 403, "token"},
		{"a closed one, with the token of envd", "/x", []string{name(s.port, s.closed), "E2b-Traffic-Access-Token: " + string(s.secret.SandboxToken(s.closed))}, 403, "token"},
		{"one that sleeps, without a token", "/x", []string{name(s.port, s.asleep)}, 403, "token"},
	} {
		res, text := s.get(tt.path, tt.headers...)
		if res.StatusCode != tt.status || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %s %s; want %d and %q", tt.name, res.Status, text, tt.status, tt.says)
		}
		if strings.Contains(text, "<script>") && strings.Contains(res.Header.Get("Content-Type"), "html") {
			t.Errorf("%s: the page says %s", tt.name, text)
		}
	}
	sandbox, err := s.driver.Get(t.Context(), s.asleep)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := sandbox.Info(t.Context()); err != nil || info.State != driver.Stopped {
		t.Errorf("it was woken without its token: %v, %v", info.State, err)
	}
	if res, text := s.get("/", name(s.port, s.asleep), "E2b-Traffic-Access-Token: "+string(s.secret.TrafficToken(s.asleep))); res.StatusCode != 200 {
		t.Errorf("it was not woken by its token: %s %s", res.Status, text)
	}
}

func TestPortsAreServedAsTheSandboxHasIt(t *testing.T) {
	program := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host, " ", r.TLS != nil) })
	s := serve(t, program)
	secure := httptest.NewTLSServer(program)
	t.Cleanup(secure.Close)
	port := secure.Listener.Addr().(*net.TCPAddr).Port
	sandbox, err := s.driver.Create(t.Context(), driver.Spec{Network: driver.Network{Public: true}, Notes: map[string]string{
		protocol.NoteMaskHost: "own.example:" + protocol.MaskPort, protocol.NoteHTTPSPorts: "1," + strconv.Itoa(port),
	}})
	if err != nil {
		t.Fatal(err)
	}
	info, err := sandbox.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[int]string{s.port: fmt.Sprintf("own.example:%d false", s.port), port: fmt.Sprintf("own.example:%d true", port)} {
		if res, text := s.get("/", name(p, string(info.ID))); res.StatusCode != 200 || text != want {
			t.Errorf("port %d: %s %q; want %q", p, res.Status, text, want)
		}
	}
	if res, text := s.get("/", name(port, s.public)); res.StatusCode != 400 {
		t.Errorf("TLS that was not asked for: %s %q", res.Status, text)
	}
}

// The headers of an answer are held in memory, so they have an end.
func TestEndlessHeadersOfAProgramAreRefused(t *testing.T) {
	var size atomic.Int64
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for left := size.Load(); left > 0; left -= 32 << 10 {
			w.Header().Add("X-Long", strings.Repeat("x", int(min(left, 32<<10))))
		}
		fmt.Fprint(w, "ok")
	}))
	for bytes, want := range map[int64]int{0: 200, protocol.MaxAnswerHeader * 3 / 4: 200, 2 * protocol.MaxAnswerHeader: 502} {
		size.Store(bytes)
		if res, text := s.get("/", name(s.port, s.public)); res.StatusCode != want || want == 502 && !strings.Contains(text, "256 KiB of headers") {
			t.Errorf("%d bytes: %s %.200q", bytes, res.Status, text)
		}
	}
}

// A program that is said to speak TLS, and is silent, holds no connection for ever: the dial
// continues when its client has left.
func TestAProgramThatBeginsNoTLSIsLeft(t *testing.T) {
	s := serve(t, http.NotFoundHandler(), func(c *ports.Config) { c.Handshake = 100 * time.Millisecond })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	port := l.Addr().(*net.TCPAddr).Port
	sandbox, err := s.driver.Create(t.Context(), driver.Spec{Network: driver.Network{Public: true}, Notes: map[string]string{protocol.NoteHTTPSPorts: fmt.Sprintf("%d,%d", port, s.port)}})
	if err != nil {
		t.Fatal(err)
	}
	info, err := sandbox.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer c.Close()
		_, err = io.Copy(io.Discard, c) // it says nothing
		ended <- err
	}()
	for what, p := range map[string]int{"one that is silent": port, "one that speaks HTTP": s.port} {
		if res, text := s.get("/", name(p, string(info.ID))); res.StatusCode != 502 || !strings.Contains(text, "did not begin TLS") {
			t.Errorf("%s: %s %q", what, res.Status, text)
		}
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the connection to the program is there still")
	}
}

func TestWhatIsForThisServerIsNotPassedOn(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			fmt.Fprintf(w, "%s: %s\n", name, strings.Join(values, ","))
		}
		w.Header().Set("Set-Cookie", "a=b")
	}))
	own := string(s.secret.SandboxToken(s.public))
	for _, secret := range []string{
		"X-Api-Key: the server's", "X-Api-Key: " + string(protocol.E2BKey("the server's")), "X-Access-Token: " + own, "Authorization: Bearer the server's",
		"Authorization: Bearer " + own, "Authorization: " + own, "E2b-Traffic-Access-Token: " + string(s.secret.TrafficToken(s.public)), "Authorization: Basic dXNlcjp0aGUgc2VydmVyJ3M=",
	} {
		_, value, _ := strings.Cut(secret, ": ")
		if _, text := s.get("/", name(s.port, s.public), secret); strings.Contains(text, value) || strings.Contains(text, "Sandbox") {
			t.Errorf("with %s the program gets\n%s", secret, text)
		}
	}
	for _, theirs := range []string{"X-Api-Key: theirs", "Authorization: Bearer theirs", "Cookie: a=b", "X-Access-Token: theirs"} {
		if _, text := s.get("/", name(s.port, s.public), theirs); !strings.Contains(text, theirs) {
			t.Errorf("without %s the program gets\n%s", theirs, text)
		}
	}
	// On the server's own origin the answer acts as no page of the server.
	byHost, _ := s.get("/", name(s.port, s.public))
	byHeader, _ := s.get("/", "E2b-Sandbox-Id: "+s.public, "E2b-Sandbox-Port: "+strconv.Itoa(s.port))
	if strings.Contains(byHost.Header.Get("Content-Security-Policy"), "sandbox") || !strings.Contains(byHeader.Header.Get("Content-Security-Policy"), "sandbox") || byHeader.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("by host %v, by header %v", byHost.Header, byHeader.Header)
	}
}

// TestAProgramHasTheQueryAndWhatTheProxyInFrontSaid: the client of the test comes from loopback, as such a proxy.
func TestAProgramHasTheQueryAndWhatTheProxyInFrontSaid(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.RequestURI, r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Host"], r.Header["X-Forwarded-Proto"])
	}))
	host := name(s.port, s.public)
	for _, uri := range []string{"/a?b;c=1&d=%zz&b", "/?100%", "/?&&"} {
		if _, text := s.get(uri, host); !strings.HasPrefix(text, uri+" [127.0.0.1] ["+strings.TrimPrefix(host, "Host: ")) {
			t.Errorf("%s reaches the program as %s", uri, text)
		}
	}
	_, text := s.get("/", host, "X-Forwarded-For: 203.0.113.7", "X-Forwarded-Host: shop.example", "X-Forwarded-Proto: https")
	if text != "/ [203.0.113.7, 127.0.0.1] [shop.example] [https]\n" {
		t.Errorf("the program has %s", text)
	}
}

// TestAnswersByHeaderKeepNothingInABrowser: there the origin is this server's own.
func TestAnswersByHeaderKeepNothingInABrowser(t *testing.T) {
	hostWide := []string{"Accept-Ch", "Alt-Svc", "Clear-Site-Data", "Nel", "Report-To", "Reporting-Endpoints", "Service-Worker-Allowed", "Strict-Transport-Security"}
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range hostWide {
			w.Header().Set(name, "of the sandbox")
		}
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("X-Own", "c")
	}))
	header := []string{"E2b-Sandbox-Id: " + s.public, "E2b-Sandbox-Port: " + strconv.Itoa(s.port)}
	for _, c := range []struct {
		what             string
		headers          []string
		hosts, hasCookie bool
	}{
		{"a program, by host name", []string{name(s.port, s.public)}, true, true},
		{"a program", header, false, true},
		{"a page of another origin", append(slices.Clone(header), "Origin: http://localhost:3000"), false, false},
		{"a page of this origin", append(slices.Clone(header), "Sec-Fetch-Site: same-origin"), false, false},
		{"a browser that says neither", append(slices.Clone(header), "User-Agent: Mozilla/5.0"), false, false},
	} {
		res, _ := s.get("/", c.headers...)
		if res.Header.Get("X-Own") != "c" {
			t.Errorf("%s: no answer of the program: %v", c.what, res.Header)
		}
		for _, name := range hostWide {
			if got := res.Header.Get(name) != ""; got != c.hosts {
				t.Errorf("%s: %s passed on is %t, want %t", c.what, name, got, c.hosts)
			}
		}
		if got := res.Header.Get("Set-Cookie") != ""; got != c.hasCookie {
			t.Errorf("%s: the cookie passed on is %t, want %t", c.what, got, c.hasCookie)
		}
	}
}

// TestCookiesOfAProgramAreForItsNameAlone: the names of other sandboxes, and of the server's page,
// are below the same domain.
func TestCookiesOfAProgramAreForItsNameAlone(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Set-Cookie", "a=b; Path=/; Domain=box.example; HttpOnly")
		w.Header().Add("Set-Cookie", "c=domain=box.example;DOMAIN =.box.example;domain")
		w.Header().Add("Set-Cookie", "d=e; Secure")
		w.Header().Add("Clear-Site-Data", `"cache"`)
		if r.URL.Path == "/cookies" {
			w.Header().Add("Clear-Site-Data", `"cookies"`)
		}
	}))
	res, _ := s.get("/", name(s.port, s.public))
	want := []string{"a=b; Path=/; HttpOnly", "c=domain=box.example", "d=e; Secure"}
	if got := res.Header.Values("Set-Cookie"); !slices.Equal(got, want) {
		t.Errorf("cookies %q, want %q", got, want)
	}
	if got := res.Header.Values("Clear-Site-Data"); !slices.Equal(got, []string{`"cache"`}) {
		t.Errorf("it clears %q; its own cache may be", got)
	}
	if res, _ = s.get("/cookies", name(s.port, s.public)); len(res.Header.Values("Clear-Site-Data")) != 0 {
		t.Errorf("it clears the cookies of the whole domain: %q", res.Header.Values("Clear-Site-Data"))
	}
}

// TestAnswersComeAsTheyAreSent: events, and what has a length or none.
func TestAnswersComeAsTheyAreSent(t *testing.T) {
	for _, h := range []http.Header{{"Content-Type": {"text/event-stream"}}, {"Content-Type": {"text/plain"}}, {"Content-Length": {"27"}}} {
		t.Run(fmt.Sprint(h), func(t *testing.T) { testAnswersComeAsTheyAreSent(t, h) })
	}
}

func testAnswersComeAsTheyAreSent(t *testing.T, header http.Header) {
	next := make(chan struct{})
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		maps.Copy(w.Header(), header)
		if w.Header().Get("Content-Length") != "" { // the headers come before the answer
			http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = strings.TrimPrefix(name(s.port, s.public), "Host: ")
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if header.Get("Content-Length") != "" {
		next <- struct{}{}
	}
	lines := bufio.NewScanner(res.Body)
	for i := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", i) || !lines.Scan() {
			t.Fatalf("event %d: %q, %v", i, lines.Text(), lines.Err())
		}
		next <- struct{}{}
	}
}

func TestWebSocketsPass(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, append([]byte("echo "), b...)) != nil {
				return
			}
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, opts := range []*websocket.DialOptions{
		{Host: strings.TrimPrefix(name(s.port, s.public), "Host: ")},
		{HTTPHeader: http.Header{"E2b-Sandbox-Id": {s.public}, "E2b-Sandbox-Port": {strconv.Itoa(s.port)}}},
	} {
		c, _, err := websocket.Dial(ctx, strings.Replace(s.url, "http", "ws", 1), opts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			text := fmt.Sprint("message ", i)
			if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if _, b, err := c.Read(ctx); err != nil || string(b) != "echo "+text {
				t.Errorf("%q, %v", b, err)
			}
		}
		c.Close(websocket.StatusNormalClosure, "")
	}
}
