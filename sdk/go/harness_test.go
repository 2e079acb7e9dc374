//go:build unix

package tend_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/processtest"
	"github.com/tend-run/tend/sdk/go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	processtest.Main() // plays a part of the suite if it was started as one
	if os.Getenv("TEND_TEST_PEER") != "" {
		languageServer(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// quick makes reconnects fast enough for tests; their pace has tests of its
// own.
var quick = tend.Retry{First: time.Millisecond, Max: 10 * time.Millisecond, Attempts: 200}

// serve starts a server of the native API on mgr.
func serve(t testing.TB, mgr process.Manager, stopping <-chan struct{}, around func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	return serveFace(t, native.Config{Manager: mgr}, stopping, around)
}

// serveFace starts a server of the native API.
func serveFace(t testing.TB, cfg native.Config, stopping <-chan struct{}, around func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	cfg.Instance, cfg.Version, cfg.Heartbeat = "test", "v0", cmp.Or(cfg.Heartbeat, 50*time.Millisecond)
	mux := http.NewServeMux()
	face := proctest.Value(native.New(cfg))(t)
	proctest.Must(t, module.Mount(mux, face, nil))
	if stopping != nil {
		go func() {
			select {
			case <-stopping:
				face.Close()
			case <-t.Context().Done():
			}
		}()
	}
	var h http.Handler = mux
	if around != nil {
		h = around(h)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv
}

func dial(t testing.TB, url string, opts tend.Options) *tend.Client {
	t.Helper()
	if opts.Retry == (tend.Retry{}) {
		opts.Retry = quick
	}
	c := proctest.Value(tend.Dial(context.Background(), url, opts))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// connected is a client of a fresh server.
func connected(t testing.TB) *tend.Client {
	t.Helper()
	return dial(t, serve(t, testkeeper.New(t), nil, nil).URL, tend.Options{})
}

func spawn(t testing.TB, c *tend.Client, cmd tend.Cmd) *tend.Process {
	t.Helper()
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	p := proctest.Value(c.Spawn(context.Background(), cmd))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

// piped is a command whose stdin stays open.
func piped(cmd tend.Cmd) tend.Cmd {
	cmd.StdinPipe = true
	return cmd
}

// losing runs each call of a method and loses the answers of those that lose
// says: the client sees a broken connection, the server has done the work.
func losing(method string, lose func(nth int32) bool, calls *atomic.Int32) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if path.Base(r.URL.Path) != method {
				next.ServeHTTP(w, r)
				return
			}
			if n := calls.Add(1); lose(n) {
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// numbered is a command that writes n lines, and what it writes.
func numbered(n int) (cmd tend.Cmd, want []byte) {
	for i := 1; i <= n; i++ {
		want = fmt.Appendln(want, i)
	}
	return tend.Command("seq", fmt.Sprint(n)), want
}
