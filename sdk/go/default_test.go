//go:build unix

package tend_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// DialDefault finds the daemon by TEND_URL, else by what it wrote into its state
// directory, and shows TEND_TOKEN.
func TestDialDefaultFindsTheDaemonAsTheCommandLineDoes(t *testing.T) {
	token := &noted{header: "Authorization"}
	url := serve(t, testkeeper.New(t), nil, token.around).URL
	for _, name := range []string{"TEND_URL", "TEND_STATE_DIR", "TEND_TOKEN"} {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	t.Setenv("TEND_STATE_DIR", dir)
	if _, err := tend.DialDefault(t.Context(), tend.Options{}); !errors.Is(err, tend.ErrNoDaemon) || !errors.Is(err, process.ErrUnavailable) {
		t.Fatalf("without a daemon: %v", err)
	} else if !strings.Contains(err.Error(), "start one: tend serve") {
		t.Errorf("it does not say how to start one: %v", err)
	}
	reach := func(want string, opts tend.Options) {
		t.Helper()
		c := proctest.Value(tend.DialDefault(t.Context(), opts))(t)
		defer c.Close()
		if got := token.last(); c.URL() != url || got != want {
			t.Errorf("reached %s with %q; want %s with %q", c.URL(), got, url, want)
		}
	}
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "url"), []byte(url+"\n"), 0o600))
	reach("", tend.Options{})
	t.Setenv("TEND_TOKEN", "secret")
	reach("Bearer secret", tend.Options{})
	reach("Bearer own", tend.Options{Token: "own"})
	t.Setenv("TEND_STATE_DIR", t.TempDir())
	t.Setenv("TEND_URL", url)
	reach("Bearer secret", tend.Options{})
}

// An interceptor sees calls and streams, the hello included.
func TestInterceptorsSeeEachCallAndStream(t *testing.T) {
	seen := &noted{header: "Traceparent"}
	c := dial(t, serve(t, testkeeper.New(t), nil, seen.around).URL, tend.Options{Interceptors: []connect.Interceptor{tracing{}}})
	if got, want := seen.last(), "/tend.v1.ProcessService/Hello"; got != want {
		t.Errorf("in a hello the server saw %q; want %q", got, want)
	}
	proctest.Value(c.List(t.Context(), process.Filter{}))(t)
	if got, want := seen.last(), "/tend.v1.ProcessService/List"; got != want {
		t.Errorf("in a call the server saw %q; want %q", got, want)
	}
	w := proctest.Value(c.Watch(t.Context()))(t)
	w.Close()
	if got, want := seen.last(), "/tend.v1.ProcessService/Events"; got != want {
		t.Errorf("in a stream the server saw %q; want %q", got, want)
	}
}

// tracing names each call in a header.
type tracing struct{}

func (tracing) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Traceparent", req.Spec().Procedure)
		return next(ctx, req)
	}
}

func (tracing) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Traceparent", spec.Procedure)
		return conn
	}
}

func (tracing) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// noted remembers a header of the last request to a server.
type noted struct {
	header string
	mu     sync.Mutex
	value  string // guarded by mu
}

func (n *noted) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.value = r.Header.Get(n.header)
		n.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

func (n *noted) last() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.value
}
