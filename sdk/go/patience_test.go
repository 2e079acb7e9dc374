//go:build unix

package tend_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
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
		c := proctest.Value(tend.Dial(t.Context(), srv.URL, opts))(t)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if _, err := c.Get(ctx, process.Selector{ID: "nobody"}); !errors.Is(err, process.ErrNotFound) {
			t.Errorf("%+v: %v; want the server's answer", opts, err)
		}
	}
}

// halting sends an event and then nothing for as long as makes it silent, about.
type halting struct {
	hostile
	silence time.Duration
}

const haltingEvents, haltingBytes = 400, 64 << 10

func (h *halting) Read(ctx context.Context, r *connect.Request[tendv1.ReadRequest], s *connect.ServerStream[tendv1.ReadResponse]) error {
	var from int64
	for _, f := range r.Msg.GetFrom() {
		if f.GetStream() == 1 {
			from = f.GetOffset()
		}
	}
	send := func(ev *tendv1.Event) bool { return s.Send(&tendv1.ReadResponse{Event: ev}) == nil }
	ok := send(hello(&tendv1.StreamOffset{Stream: 1, Offset: from}, &tendv1.StreamOffset{Stream: 2}, &tendv1.StreamOffset{Stream: 3}))
	data := strings.Repeat("x", haltingBytes)
	for ; ok && from < haltingEvents*haltingBytes; from += haltingBytes {
		ok = send(output(1, from, data))
		time.Sleep(h.silence*3/4 + rand.N(h.silence/2))
	}
	for _, stream := range []tendv1.Stream{1, 2} {
		ok = ok && send(&tendv1.Event{ProcessId: id, Fact: &tendv1.Event_Eof{Eof: &tendv1.Event_StreamEnd{Stream: stream, Offset: from * int64(2-stream)}}})
	}
	if ok {
		send(&tendv1.Event{ProcessId: id, Fact: &tendv1.Event_Exited{Exited: &tendv1.Exit{}}})
	}
	return nil
}

// A server may be given up as silent in the very moment in which it speaks, while the
// caller is slow: what it said then is not lost.
func TestAnEventThatCameInTheLastMomentIsKept(t *testing.T) {
	t.Parallel()
	h := &halting{hostile: hostile{info: known(func(*tendv1.Info) {})}, silence: 4 * time.Millisecond}
	mux := http.NewServeMux()
	mux.Handle(tendv1connect.NewProcessServiceHandler(h))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	c := dial(t, srv.URL, tend.Options{Silence: h.silence, Retry: tend.Retry{First: time.Millisecond, Max: time.Millisecond, Attempts: 100_000}})
	p := proctest.Value(c.Get(t.Context(), process.Selector{ID: id}))(t)
	r := proctest.Value(p.Read(t.Context(), process.ReadOptions{}))(t)
	defer r.Close()
	var at int64
	for {
		ev, ok, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			if at != haltingEvents*haltingBytes {
				t.Errorf("%d bytes came, want %d", at, haltingEvents*haltingBytes)
			}
			return
		case err != nil:
			t.Fatal(err)
		case !ok:
			<-r.Ready()
		case ev.Kind == process.EventOutput:
			if ev.Offset != at {
				t.Fatalf("output goes on at %d after %d", ev.Offset, at)
			}
			at += int64(len(ev.Data))
			time.Sleep(2 * h.silence)
		}
	}
}
