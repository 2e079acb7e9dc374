package protocol_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/support/proctest"
)

// A server finds out once whose a connection is, though a stream takes it over
// and gives it back.
func TestANoteStaysWithAConnectionThatIsGivenBack(t *testing.T) {
	inner := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	l := protocol.NewListener(inner)
	notes := make(chan any, 10)
	srv := &http.Server{
		ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			ctx = l.ConnContext(ctx, c)
			note := protocol.NoteOf(ctx)
			notes <- *note
			if *note == nil {
				*note = "noted"
			}
			return ctx
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			back := protocol.ReturnerOf(r.Context())
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := c.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n")); err != nil || !back.Return(c) {
				t.Errorf("the connection was not given back (%v)", err)
			}
		}),
	}
	ended := make(chan error)
	go func() { ended <- srv.Serve(l) }()
	defer func() {
		srv.Close()
		<-ended
	}()
	for range 2 { // clients, with a connection each
		c := &http.Client{Transport: &http.Transport{}}
		defer c.CloseIdleConnections()
		for i := range 3 {
			res := proctest.Value(c.Get("http://" + inner.Addr().String()))(t)
			res.Body.Close()
			if i == 0 {
				if got := <-notes; got != nil {
					t.Errorf("a new connection has the note %v", got)
				}
			}
			if got := <-notes; got != "noted" {
				t.Errorf("the connection was given back after request %d, and has the note %v", i, got)
			}
		}
	}
}

// A server may be told to stop before its first Accept. The race detector
// finds what Accept and Close share.
func TestCloseBesideTheFirstAccept(t *testing.T) {
	for range 200 {
		inner := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
		l := protocol.NewListener(inner)
		accepted := make(chan error)
		go func() {
			_, err := l.Accept()
			accepted <- err
		}()
		l.Close()
		if err := <-accepted; err == nil {
			t.Fatal("a closed listener accepted a connection")
		}
	}
}
