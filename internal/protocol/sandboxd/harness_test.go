package sandboxd

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a face on listeners of its own.
type served struct {
	face     *Face
	manager  process.Manager
	root     string
	rest     string // URL, as that of grpc
	grpc     string
	stopping atomic.Bool
	end      func() // ends it as the server does, and waits
}

func serve(t *testing.T, change func(*Config)) *served {
	t.Helper()
	s := &served{manager: testkeeper.New(t), root: proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)}
	s.start(t, change)
	return s
}

// start serves with a fresh face, as after a restart of the server.
func (s *served) start(t *testing.T, change func(*Config)) {
	t.Helper()
	listen := func() net.Listener { return proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t) }
	c := Config{Machine: host.NewMachine(s.manager), Stopping: s.stopping.Load, Log: slog.New(slog.DiscardHandler),
		Settings: Settings{REST: listen(), GRPC: listen(), Root: s.root, MetadataPrefix: "SANDBOX_", Idle: time.Minute,
			Environ: []string{"SANDBOX_A=b=c", "SANDBOX_EMPTY=", "SANDBOX_api_key=x", "SANDBOX_TOKENS=x", "OTHER=x", "SANDBOX"}}}
	if change != nil {
		change(&c)
	}
	s.face = proctest.Value(New(c))(t)
	s.rest, s.grpc = "http://"+c.REST.Addr().String(), "http://"+c.GRPC.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.face.Run(ctx) }()
	ended := false
	s.end = func() {
		if cancel(); !ended {
			ended = true
			proctest.Must(t, <-done)
		}
	}
	t.Cleanup(s.end)
}

// ask sends a request, and returns status and body.
func (s *served) ask(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	r := proctest.Value(http.NewRequestWithContext(t.Context(), method, s.rest+path, strings.NewReader(body)))(t)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res := proctest.Value(tr.RoundTrip(r))(t)
	defer res.Body.Close()
	return res.StatusCode, string(proctest.Value(io.ReadAll(res.Body))(t))
}
