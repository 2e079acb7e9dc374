//go:build unix

package tend_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// Whoever listens and never answers is given up by a client with patience, at the
// first hello, over each version of HTTP.
func TestAServerThatNeverAnswersIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, opts := range []tend.Options{{Patience: 200 * time.Millisecond}, {Patience: 200 * time.Millisecond, HTTP1: true}} {
		l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, and nobody does
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := tend.Dial(t.Context(), "http://"+l.Addr().String(), opts)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("%+v: %v; want that it is not reachable", opts, err)
		}
	}
}

// stalling answers a hello on every connection, and other calls on all but the first.
type stalling struct {
	hostile
	first atomic.Pointer[string] // the connection
	over  chan struct{}          // the calls that stall may end
}

func (s *stalling) Hello(_ context.Context, r *connect.Request[tendv1.HelloRequest]) (*connect.Response[tendv1.HelloResponse], error) {
	s.first.CompareAndSwap(nil, new(r.Peer().Addr))
	return connect.NewResponse(&tendv1.HelloResponse{}), nil
}

func (s *stalling) Get(_ context.Context, r *connect.Request[tendv1.GetRequest]) (*connect.Response[tendv1.GetResponse], error) {
	if r.Peer().Addr == *s.first.Load() {
		<-s.over
	}
	return nil, tendpb.Error(process.ErrNotFound)
}

// A connection may pass a hello on and nothing larger. A call that it delays is
// made on another one, over each version of HTTP.
func TestACallLeavesAConnectionOnWhichItStalls(t *testing.T) {
	t.Parallel()
	for _, opts := range []tend.Options{{Silence: 100 * time.Millisecond}, {Silence: 100 * time.Millisecond, HTTP1: true}} {
		mux := http.NewServeMux()
		over := make(chan struct{})
		mux.Handle(tendv1connect.NewProcessServiceHandler(&stalling{over: over}))
		srv := httptest.NewUnstartedServer(mux)
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetHTTP1(true)
		srv.Config.Protocols.SetUnencryptedHTTP2(true)
		srv.Start()
		defer srv.Close()
		defer close(over)
		c := scene.Value(tend.Dial(t.Context(), srv.URL, opts))(t)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if _, err := c.Get(ctx, process.Selector{ID: "nobody"}); !errors.Is(err, process.ErrNotFound) {
			t.Errorf("%+v: %v; want the server's answer", opts, err)
		}
	}
}
