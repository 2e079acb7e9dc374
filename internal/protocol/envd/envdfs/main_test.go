package envdfs

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os/user"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a running Face whose empty path means dir.
type server struct {
	t     *testing.T
	face  *Face
	url   string
	dir   string
	user  string
	token protocol.Token
	http  *http.Client
}

func serve(t *testing.T, cfg Config) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir()}
	u := proctest.Value(user.Current())(t)
	s.user = u.Username
	if cfg.Files == nil {
		cfg.Files = machineIn(s.dir)
	}
	cfg.Tokens = func(*http.Request) []protocol.Token {
		if s.token.Set() {
			return []protocol.Token{s.token}
		}
		return nil
	}
	s.face = New(cfg)
	mux := http.NewServeMux()
	proctest.Must(t, module.Mount(mux, s.face, nil))
	srv := httptest.NewServer(mux)
	s.url = srv.URL
	transport := &http.Transport{DisableCompression: true}
	s.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		if err := s.face.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		srv.Close()
	})
	return s
}

// machineIn returns the files of this machine, where the empty path means dir.
func machineIn(dir string) func(context.Context, string) (driver.Files, error) {
	return func(_ context.Context, user string) (driver.Files, error) {
		return host.NewMachine(nil).Files(user, dir)
	}
}

// do sends a request; headers are "Name: value" lines.
func (s *server) do(method, path, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	req := proctest.Value(http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body)))(s.t)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	res := proctest.Value(s.http.Do(req))(s.t)
	defer res.Body.Close()
	text := proctest.Value(io.ReadAll(res.Body))(s.t)
	return res, string(text)
}

func basic(name string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"))
}
