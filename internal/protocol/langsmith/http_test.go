package langsmith_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/yamux"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/langsmith"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestTheKeyIsNeededOnBothPlanes(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *langsmith.Config) { c.Token = func() protocol.Token { return "secret" } })
	paths := []struct{ method, path string }{
		{"GET", "/v2/sandboxes/boxes"}, {"POST", "/api/v2/sandboxes/boxes"}, {"GET", "/v2/sandboxes/snapshots"},
		{"POST", s.data() + "/execute"}, {"GET", s.data() + "/download?path=x"}, {"POST", s.data() + "/glob"}, {"GET", s.data() + "/execute/ws"}, {"GET", s.data() + "/tunnel"},
	}
	for _, p := range paths {
		for _, headers := range [][]string{nil, {"X-Api-Key: wrong"}, {"Authorization: Bearer wrong"}} {
			if status, body := s.call(p.method, p.path, "{}", headers...); status != 401 || !strings.Contains(body, `"detail":{"error":"Unauthorized"`) {
				t.Errorf("%s %s with %q: %d %s", p.method, p.path, headers, status, body)
			}
		}
	}
	for _, key := range []string{"X-Api-Key: secret", "Authorization: Bearer secret"} {
		if status, _ := s.call("GET", "/v2/sandboxes/boxes", "", key); status != 200 {
			t.Errorf("with %s: %d", key, status)
		}
	}
	_, res, err := websocket.Dial(t.Context(), s.data()+"/execute/ws", nil)
	if err == nil || res.StatusCode != 401 {
		t.Errorf("an upgrade without the key: %v", err)
	}
	s.key = "secret"
	c, f := s.execute(object{"command": "true"})
	if f.Type != "started" {
		t.Errorf("%+v", f)
	}
	c.rest(0, 0)
}

func TestControlPlane(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	tests := []struct {
		name, method, path, body string
		status                   int
		say                      string
	}{
		{"a box", "POST", "/v2/sandboxes/boxes", `{"name":"b1","vcpus":2}`, 201, `"name":"b1","status":"ready","dataplane_url":"http://127.0.0.1`},
		{"a name that is taken", "POST", "/v2/sandboxes/boxes", `{"name":"b1"}`, 409, "NameConflict"},
		{"a bad name", "POST", "/v2/sandboxes/boxes", `{"name":"a/b"}`, 422, `"type":"value_error"`},
		{"malformed JSON", "POST", "/v2/sandboxes/boxes", `{`, 400, "InvalidRequest"},
		{"a body that is too large", "POST", "/v2/sandboxes/boxes", `{"name":"` + strings.Repeat("x", 5<<20) + `"}`, 413, "larger"},
		{"a snapshot", "POST", "/v2/sandboxes/boxes", `{"snapshot_id":"s"}`, 501, "NotSupported"},
		{"what no driver here does", "POST", "/v2/sandboxes/boxes", `{"mount_config":{"a":1}}`, 501, "mount_config"},
		{"a negative time", "POST", "/v2/sandboxes/boxes", `{"idle_ttl_seconds":-60}`, 422, "idle_ttl"},
		{"the other prefix", "GET", "/api/v2/sandboxes/boxes/b1", "", 200, `"name":"b1"`},
		{"a list", "GET", "/v2/sandboxes/boxes", "", 200, `"sandboxes":[`},
		{"a page of it", "GET", "/v2/sandboxes/boxes?page_size=1", "", 200, `"next_cursor":`},
		{"an unknown box", "GET", "/v2/sandboxes/boxes/none", "", 404, `"error":"NotFound"`},
		{"a status", "GET", "/v2/sandboxes/boxes/b1/status", "", 200, `"status":"ready"`},
		{"a change", "PATCH", "/v2/sandboxes/boxes/b1", `{"name":"b2","idle_ttl_seconds":60}`, 200, `"idle_ttl_seconds":60`},
		{"a stop", "POST", "/v2/sandboxes/boxes/b2/stop", "{}", 200, `"status":"stopped"`},
		{"a start", "POST", "/v2/sandboxes/boxes/b2/start", "{}", 200, `"status":"ready"`},
		{"a snapshot of it", "POST", "/v2/sandboxes/boxes/b2/snapshot", `{"name":"s"}`, 501, "NotSupported"},
		{"snapshots", "GET", "/v2/sandboxes/snapshots", "", 501, "NotSupported"},
		{"registries", "GET", "/v2/sandboxes/registries", "", 501, "NotSupported"},
		{"a port that is none", "POST", "/v2/sandboxes/boxes/b2/service-url", `{"port":70000}`, 422, "port"},
		{"a link to nothing", "POST", "/v2/sandboxes/boxes/b2/download-url", `{}`, 422, "path"},
		{"an end", "DELETE", "/v2/sandboxes/boxes/b2", "", 204, ""},
		{"an end once more", "DELETE", "/v2/sandboxes/boxes/b2", "", 404, "NotFound"},
		{"a path that is none", "GET", "/v2/sandboxes/boxes/x/y/z", "", 404, "NotFound"},
		{"a method that is none", "PUT", "/v2/sandboxes/boxes", "{}", 404, "PUT"},
		{"a data plane of nobody", "POST", "/langsmith/none/execute", "{}", 404, "NotFound"},
	}
	for _, tt := range tests {
		if status, body := s.call(tt.method, tt.path, tt.body); status != tt.status || !strings.Contains(body, tt.say) {
			t.Errorf("%s: %d %.300s, want %d and %q", tt.name, status, body, tt.status, tt.say)
		}
	}
	status, body := s.call("GET", "/v2/sandboxes/boxes/box", "", "X-Forwarded-Proto: https", "X-Forwarded-Host: example.org, inner")
	if status != 200 || !strings.Contains(body, `"dataplane_url":"https://example.org/langsmith/`) {
		t.Errorf("behind a proxy: %d %s", status, body)
	}
}

func TestHTTPExecute(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	tests := []struct {
		name, body string
		status     int
		want       string
	}{
		{"both streams and the code", `{"command":"echo out; echo err >&2; exit 3"}`, 200, `{"stdout":"out\n","stderr":"err\n","exit_code":3}`},
		{"bytes that are no text", `{"command":"printf 'a\\377\\342\\202'"}`, 200, "{\"stdout\":\"a\uFFFD\uFFFD\uFFFD\",\"stderr\":\"\",\"exit_code\":0}"},
		{"no input", `{"command":"cat"}`, 200, `{"stdout":"","stderr":"","exit_code":0}`},
		{"a background job", `{"command":"sleep 60 & echo x"}`, 200, `{"stdout":"x\n","stderr":"","exit_code":0}`},
		{"a timeout", `{"command":"sleep 60","timeout":0.1}`, 408, `CommandTimeout`},
		{"a missing shell", `{"command":"true","shell":"/no/shell"}`, 400, `CommandError`},
		{"no command", `{}`, 400, `InvalidRequest`},
		{"a negative timeout", `{"command":"true","timeout":-1}`, 400, `timeout`},
	}
	for _, tt := range tests {
		if status, body := s.call("POST", s.data()+"/execute", tt.body); status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, status, body, tt.status, tt.want)
		}
	}
}

// form makes an upload.
func form(t *testing.T, name string, data []byte) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile(name, "file")
	if err == nil {
		_, err = part.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), "Content-Type: " + w.FormDataContentType()
}

func TestFiles(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	body, kind := form(t, "file", []byte("0123456789"))
	if status, text := s.call("POST", s.data()+"/upload?path=d/f.txt", body, kind); status != 200 {
		t.Fatal(status, text)
	}
	res := s.do("GET", s.data()+"/download?path=d/f.txt", "", "Range: bytes=2-4")
	part, err := io.ReadAll(res.Body)
	res.Body.Close()
	tag := res.Header.Get("ETag")
	if err != nil || res.StatusCode != 206 || string(part) != "234" || res.Header.Get("Content-Range") != "bytes 2-4/10" || !strings.HasPrefix(tag, `"`) {
		t.Errorf("%s %q %v", res.Status, part, res.Header)
	}
	wrong, wrongKind := form(t, "other", nil)
	tests := []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		say                      string
	}{
		{"an unchanged file", "GET", "/download?path=d/f.txt", "", []string{"If-None-Match: " + tag}, 304, ""},
		{"a range behind the end", "GET", "/download?path=d/f.txt", "", []string{"Range: bytes=99-"}, 416, "10 bytes"},
		{"a head", "HEAD", "/download?path=d/f.txt", "", nil, 200, ""},
		{"a missing file", "GET", "/download?path=none", "", nil, 404, "FileNotFound"},
		{"a directory", "GET", "/download?path=d", "", nil, 400, "ReadError"},
		{"no path", "GET", "/download", "", nil, 400, "path is missing"},
		{"a NUL byte", "GET", "/download?path=a%00b", "", nil, 422, "NUL"},
		{"an upload over a directory", "POST", "/upload?path=d", body, []string{kind}, 400, "WriteError"},
		{"an upload without a part", "POST", "/upload?path=x", wrong, []string{wrongKind}, 400, `\"file\"`},
		{"an upload that is no form", "POST", "/upload?path=x", "text", nil, 400, "multipart"},
		{"an upload that breaks off", "POST", "/upload?path=x", body[:len(body)/2], []string{kind}, 400, "InvalidRequest"},
		{"a glob", "POST", "/glob", `{"pattern":"**/*.txt","path":"."}`, nil, 200, `/d/f.txt","is_dir":false,"size_bytes":10`},
		{"a malformed glob", "POST", "/glob", `{"pattern":"[","path":"."}`, nil, 400, "malformed"},
		{"a glob in a file", "POST", "/glob", `{"pattern":"*","path":"d/f.txt"}`, nil, 400, "not a directory"},
		{"a grep", "POST", "/grep", `{"pattern":"345","path":"d"}`, nil, 200, `"line":1,"text":"0123456789"`},
		{"a grep for nothing", "POST", "/grep", `{"pattern":"","path":"d"}`, nil, 400, "empty"},
		{"a limit of none", "POST", "/grep", `{"pattern":"x","path":"d","limit":0}`, nil, 400, "limit"},
	}
	for _, tt := range tests {
		if status, text := s.call(tt.method, s.data()+tt.path, tt.body, tt.headers...); status != tt.status || !strings.Contains(text, tt.say) {
			t.Errorf("%s: %d %s, want %d and %q", tt.name, status, text, tt.status, tt.say)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *langsmith.Config) { c.Token = func() protocol.Token { return "secret" } })
	s.key = "secret"
	proctest.Must(t, os.WriteFile(filepath.Join(s.box.Dir, "page.html"), []byte("<script>"), 0o644))
	var link struct {
		DownloadURL string `json:"download_url"`
	}
	_, text := s.call("POST", "/v2/sandboxes/boxes/box/download-url", `{"path":"page.html","content_disposition":"inline"}`)
	if err := json.Unmarshal([]byte(text), &link); err != nil {
		t.Fatal(text, err)
	}
	s.key = ""
	res := s.do("GET", link.DownloadURL, "")
	res.Body.Close()
	if res.StatusCode != 200 || !strings.Contains(res.Header.Get("Content-Security-Policy"), "sandbox") || res.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s %v", res.Status, res.Header)
	}
	other := proctest.Value(s.driver.Create(t.Context(), driver.Spec{Name: "other"}))(t)
	info := proctest.Value(other.Info(t.Context()))(t)
	for name, url := range map[string]string{
		"a changed token":        link.DownloadURL[:len(link.DownloadURL)-4] + "AAAA",
		"no token":               s.data() + "/link/x",
		"another box":            strings.Replace(link.DownloadURL, string(s.box.ID), string(info.ID), 1),
		"as a token of a port":   s.data() + "/service/80/?_langsmith_service_token=" + filepath.Base(link.DownloadURL),
		"a port without a token": s.data() + "/service/80/",
	} {
		if status, body := s.call("GET", url, ""); status != 403 || !strings.Contains(body, "PermissionDenied") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	s.face.Close()
	s.start(nil) // links outlive the server
	again := s.url + strings.TrimPrefix(link.DownloadURL, link.DownloadURL[:strings.Index(link.DownloadURL, "/langsmith/")])
	if status, body := s.call("GET", again, ""); status != 200 || body != "<script>" {
		t.Errorf("after a restart: %d %s", status, body)
	}
}

func TestServiceLinksLeadToAPort(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *langsmith.Config) { c.Token = func() protocol.Token { return "secret" } })
	s.key = "secret"
	inside := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.URL.Path+"?"+r.URL.RawQuery+" "+r.Header.Get("Cookie")+r.Header.Get("X-Api-Key")+r.Header.Get("X-Langsmith-Sandbox-Service-Token"))
	})}
	l := proctest.Value(net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))))(t) // nobody gets it once it is closed
	go inside.Serve(l)
	t.Cleanup(func() { inside.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var link struct {
		ServiceURL string `json:"service_url"`
		BrowserURL string `json:"browser_url"`
		Token      string `json:"token"`
	}
	_, text := s.call("POST", "/v2/sandboxes/boxes/box/service-url", `{"port":`+port+`}`)
	if err := json.Unmarshal([]byte(text), &link); err != nil {
		t.Fatal(text, err)
	}
	if _, body := s.call("GET", link.ServiceURL+"a%2Fb/c?q=1", "", "X-Langsmith-Sandbox-Service-Token: "+link.Token, "Cookie: own=1"); body != "/a/b/c?q=1 own=1" {
		t.Errorf("inside came %q", body)
	}
	res := s.do("GET", link.BrowserURL, "")
	res.Body.Close()
	if res.StatusCode != 302 || strings.Contains(res.Header.Get("Location"), link.Token) || !strings.Contains(res.Header.Get("Set-Cookie"), "HttpOnly") {
		t.Errorf("%s %v", res.Status, res.Header)
	}
	cookie, _, _ := strings.Cut(res.Header.Get("Set-Cookie"), ";")
	if _, body := s.call("GET", link.ServiceURL, "", "Cookie: "+cookie+"; own=1"); body != "/? own=1" {
		t.Errorf("inside came %q", body)
	}
	l.Close()
	inside.Close()
	if status, body := s.call("GET", link.ServiceURL, "", "X-Langsmith-Sandbox-Service-Token: "+link.Token); status != 502 || !strings.Contains(body, "ConnectionError") {
		t.Errorf("with nobody there: %d %s", status, body)
	}
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // an echo
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	ws, _, err := websocket.Dial(t.Context(), s.data()+"/tunnel", nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := yamux.DefaultConfig()
	cfg.LogOutput = io.Discard
	session := proctest.Value(yamux.Client(websocket.NetConn(t.Context(), ws, websocket.MessageBinary), cfg))(t)
	defer session.Close()
	port := l.Addr().(*net.TCPAddr).Port
	open := func(version byte, port int) (net.Conn, byte) {
		t.Helper()
		c := proctest.Value(session.Open())(t)
		proctest.Value(c.Write([]byte{version, byte(port >> 8), byte(port)}))(t)
		var status [1]byte
		proctest.Value(io.ReadFull(c, status[:]))(t)
		return c, status[0]
	}
	got := []byte{}
	for _, try := range []struct {
		version byte
		port    int
	}{{2, port}, {1, 0}, {1, 1}} {
		c, status := open(try.version, try.port)
		got = append(got, status)
		c.Close()
	}
	if d := cmp.Diff([]byte{3, 1, 2}, got); d != "" {
		t.Error(d)
	}
	c, status := open(1, port)
	if status != 0 {
		t.Fatal("status", status)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go c.Write(data)
	back := make([]byte, len(data))
	if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(back, data) {
		t.Errorf("the echo differs: %v", err)
	}
	c.Close()
}
