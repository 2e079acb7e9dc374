package face

import (
	"context"
	"net"
	"sync"
)

// Listener lets a handler that took a connection over (http.Hijacker) give it
// back when it is done, so that a keep-alive client can go on using it. Give
// it to http.Server.Serve in place of the inner listener, and its ConnContext
// to http.Server.ConnContext.
type Listener struct {
	net.Listener
	back   chan net.Conn
	fresh  chan accepted
	closed chan struct{}
	once   sync.Once
	start  sync.Once
	wg     sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// NewListener wraps inner. Close closes both.
func NewListener(inner net.Listener) *Listener {
	return &Listener{Listener: inner, back: make(chan net.Conn), fresh: make(chan accepted), closed: make(chan struct{})}
}

// Accept returns the next new connection, or one that was given back.
func (l *Listener) Accept() (net.Conn, error) {
	l.start.Do(func() { l.wg.Go(l.acceptLoop) })
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case a := <-l.fresh:
		return a.conn, a.err
	case c := <-l.back:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *Listener) acceptLoop() {
	for {
		c, err := l.Listener.Accept()
		select {
		case l.fresh <- accepted{c, err}:
		case <-l.closed:
			if c != nil {
				c.Close()
			}
			return
		}
	}
}

// Close stops accepting and waits until the accepting goroutine has ended.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	l.once.Do(func() { close(l.closed) })
	l.wg.Wait()
	return err
}

type listenerKey struct{}

// accepter is what handlers know of their connection.
type accepter struct {
	listener *Listener
	conn     net.Conn
}

// ConnContext makes listener and connection known to the handlers. It has the
// form of http.Server.ConnContext.
func (l *Listener) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, listenerKey{}, accepter{l, c})
}

// ConnOf returns the connection that a request came on, to look at its state:
// net/http reads and writes it. nil: not known.
func ConnOf(ctx context.Context) net.Conn {
	a, _ := ctx.Value(listenerKey{}).(accepter)
	return a.conn
}

// Returner gives back a connection that was taken over by Hijack.
type Returner interface {
	// Return serves the connection's next request, and reports whether it
	// took the connection; if not, the caller closes it.
	Return(c net.Conn) bool
}

// ReturnerOf finds out, from the context of a request, where its connection
// can be given back. nil: nowhere, so the response must say that the
// connection closes.
func ReturnerOf(ctx context.Context) Returner {
	if a, ok := ctx.Value(listenerKey{}).(accepter); ok {
		return a.listener
	}
	return nil
}

// Return implements [Returner].
func (l *Listener) Return(c net.Conn) bool {
	select {
	case l.back <- c:
		return true
	case <-l.closed:
		return false
	}
}
