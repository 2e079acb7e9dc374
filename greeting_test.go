package tend_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tend-run/tend"
	"github.com/tend-run/tend/internal/scene"
)

// watchedConn notes whether it is read before anything was written.
type watchedConn struct {
	net.Conn
	wrote atomic.Bool
	early *atomic.Bool
}

func (c *watchedConn) Read(b []byte) (int, error) {
	if !c.wrote.Load() {
		c.early.Store(true)
	}
	return c.Conn.Read(b)
}

func (c *watchedConn) Write(b []byte) (int, error) {
	c.wrote.Store(true)
	return c.Conn.Write(b)
}

// What greets is no answer to a request, however soon it does.
func TestAServerThatGreetsIsNoTend(t *testing.T) {
	l := scene.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n"))
			c.Read(make([]byte, 1024))
			c.Close()
		}
	}()
	defer func() { l.Close(); <-served }()
	var early atomic.Bool
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return &watchedConn{Conn: c, early: &early}, err
	}
	for range 20 {
		_, err := tend.Dial(t.Context(), "http://"+l.Addr().String(), tend.Options{HTTP1: true, DialContext: dial})
		if err == nil || !strings.Contains(err.Error(), "it is no tend server") {
			t.Fatalf("got %v", err)
		}
	}
	if early.Load() {
		t.Error("it was read before there was a request")
	}
}
