package server

import (
	"context"
	"log"
	"net"
	"net/http"
	"sync"

	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	where "github.com/tend-run/tend/internal/sandbox/route"
)

// Programs in sandboxes reach the routes that are marked [module.Route.Inside], by a
// listening socket in their own network: those of their own sandbox, with its token, and
// nothing else of the server, whatever host they name. At the other ports of the server there, hosters answer alone.
// They speak HTTP/1.1 alone, so that a connection is one request at a time, and all of them together have the
// connections that strangers have.
const innerConns = 32 // of one sandbox at a time; a further one is reset

// innerListener bounds and marks the connections of one sandbox.
type innerListener struct {
	net.Listener
	id    driver.ID
	slots chan struct{}
}

// innerConn is one of them.
type innerConn struct {
	*net.TCPConn
	id   driver.ID
	give func()
}

func (l *innerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			c.Close()
			continue
		}
		select {
		case l.slots <- struct{}{}:
			return &innerConn{tcp, l.id, sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			_ = tcp.SetLinger(0) // then it is closed in the usual way
			tcp.Close()
		}
	}
}

func (c *innerConn) Close() error {
	defer c.give()
	return c.TCPConn.Close()
}

// innerServer serves the listeners inside sandboxes until it is shut down.
func (s *Server) innerServer(requests context.Context, wg *sync.WaitGroup) *http.Server {
	srv := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: s.limits.HeaderTimeout, IdleTimeout: s.limits.IdleTimeout,
		MaxHeaderBytes: s.limits.HeaderBytes, BaseContext: func(net.Listener) context.Context { return requests },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			inner := c.(*innerConn)
			port := where.EnvdPort
			if at, ok := inner.LocalAddr().(*net.TCPAddr); ok && at.Port == where.CodePort {
				port = at.Port
			}
			return s.conns.note(where.WithInside(ctx, inner.id, port), c, stranger)
		},
		ConnState: s.conns.state, ErrorLog: log.New(errorLog{s.log}, "", 0),
	}
	s.cfg.Doors.Serve(func(id driver.ID, l net.Listener) {
		wg.Go(func() { // it ends with the listener, or the server
			_ = srv.Serve(&innerListener{l, id, make(chan struct{}, innerConns)})
		})
	})
	return srv
}

// doorServer serves the page's own port, whenever it is opened, until it is shut down. Of its
// requests only those of the page are served, with a login.
func (s *Server) doorServer(requests context.Context, wg *sync.WaitGroup) *http.Server {
	srv := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: s.limits.HeaderTimeout, IdleTimeout: s.limits.IdleTimeout,
		MaxHeaderBytes: s.limits.HeaderBytes, BaseContext: func(net.Listener) context.Context { return requests },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return s.conns.note(s.withPeer(module.WithDoor(ctx), c), c, stranger)
		},
		ConnState: s.conns.state, ErrorLog: log.New(errorLog{s.log}, "", 0),
	}
	s.cfg.Door.Serve(func(l net.Listener) {
		wg.Go(func() { _ = srv.Serve(l) }) // it ends with the listener
	})
	return srv
}

// innerRequest is a request from inside, with none of the names by which others find
// sandboxes or the server.
func innerRequest(r *http.Request) *http.Request {
	r = r.WithContext(r.Context()) // a copy
	r.Header = r.Header.Clone()
	for _, name := range []string{"E2b-Sandbox-Id", "E2b-Sandbox-Port", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
		r.Header.Del(name)
	}
	r.Host = "localhost"
	return r
}
