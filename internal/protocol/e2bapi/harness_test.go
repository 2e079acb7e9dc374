package e2bapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/e2bapi"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// open is the host driver for callers that ask for isolation.
type open struct{ *host.Driver }

func (d open) Create(ctx context.Context, s driver.Spec) (driver.Sandbox, error) {
	if s.Isolation != driver.IsolationFull {
		panic("a sandbox was asked for that is not isolated")
	}
	s.Isolation = driver.IsolationNone
	return d.Driver.Create(ctx, s)
}

// server is the face behind a real HTTP server, over sandboxes of the host driver.
type server struct {
	t      *testing.T
	url    string
	driver driver.Driver
	secret *protocol.Secret
	token  protocol.Token
	dir    string
}

func serve(t *testing.T, change func(*e2bapi.Config)) *server {
	t.Helper()
	return serveFace(t, change, new(*e2bapi.Face))
}

// serveFace is serve, for a test that has the face run.
func serveFace(t *testing.T, change func(*e2bapi.Config), face **e2bapi.Face) *server {
	t.Helper()
	s := &server{t: t, secret: protocol.NewSecret(), dir: t.TempDir()}
	d, err := host.Open(host.Config{Dir: filepath.Join(s.dir, "boxes"), Manager: testkeeper.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	cfg := e2bapi.Config{Driver: open{d}, Secret: s.secret, Dir: filepath.Join(s.dir, "e2b"), Token: func() protocol.Token { return s.token }}
	if change != nil {
		change(&cfg)
	}
	s.driver = cfg.Driver
	f, err := e2bapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	*face = f
	mux := http.NewServeMux()
	if err := module.Mount(mux, f, nil); err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(mux)
	t.Cleanup(hs.Close)
	s.url = hs.URL
	return s
}

// do makes a request; headers are "Name: value".
func (s *server) do(method, path, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		req.ContentLength = -1 // JavaScript sends its bodies in chunks
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
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

// call makes a request, wants a status, and reads the answer.
func (s *server) call(want int, method, path, body string, headers ...string) (answer map[string]any) {
	s.t.Helper()
	res, text := s.do(method, path, body, headers...)
	if res.StatusCode != want {
		s.t.Fatalf("%s %s: %s %s; want %d", method, path, res.Status, text, want)
	}
	if want == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		s.t.Fatalf("%s %s: %s: %v", method, path, text, err)
	}
	if want >= 400 && (answer["code"] != float64(want) || answer["message"] == "") {
		s.t.Errorf("%s %s: the error %s has not its status as code, or no text", method, path, text)
	}
	return answer
}

// create makes a sandbox as the JavaScript SDK does, and returns its ID.
func (s *server) create(body string) string {
	s.t.Helper()
	id, _ := s.call(201, "POST", "/v2/sandboxes", body)["sandboxID"].(string)
	if !driver.LikeID(id) {
		s.t.Fatalf("the sandbox has the ID %q", id)
	}
	return id
}

// list reads a list of sandboxes, as IDs.
func (s *server) list(path string) (ids []string, next string) {
	s.t.Helper()
	res, text := s.do("GET", path, "")
	var list []struct{ SandboxID string }
	if err := json.Unmarshal([]byte(text), &list); err != nil || res.StatusCode != 200 {
		s.t.Fatalf("%s: %s %s, %v", path, res.Status, text, err)
	}
	for _, l := range list {
		ids = append(ids, l.SandboxID)
	}
	return ids, res.Header.Get("x-next-token")
}
