package protocol

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
	back   chan accepted
	fresh  chan accepted
	closed chan struct{}
	once   sync.Once
	start  sync.Once
	wg     sync.WaitGroup

	mu    sync.Mutex
	notes map[net.Conn]any // from Accept to ConnContext; guarded by mu
}

type accepted struct {
	conn net.Conn
	err  error
	note any // of a connection that was given back
}

// NewListener wraps inner. Close closes both.
func NewListener(inner net.Listener) *Listener {
	return &Listener{Listener: inner, back: make(chan accepted), fresh: make(chan accepted), closed: make(chan struct{}),
		notes: map[net.Conn]any{}}
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
	case a := <-l.back:
		l.mu.Lock()
		l.notes[a.conn] = a.note
		l.mu.Unlock()
		return a.conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *Listener) acceptLoop() {
	for {
		c, err := l.Listener.Accept()
		select {
		case l.fresh <- accepted{conn: c, err: err}:
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
	l.start.Do(func() {}) // a first Accept beside this Close starts nothing more
	l.wg.Wait()
	return err
}

type listenerKey struct{}

// accepter is what handlers know of their connection.
type accepter struct {
	listener *Listener
	conn     net.Conn
	note     *any
}

// ConnContext makes listener and connection known to the handlers. It has the
// form of http.Server.ConnContext.
func (l *Listener) ConnContext(ctx context.Context, c net.Conn) context.Context {
	l.mu.Lock()
	note := l.notes[c]
	delete(l.notes, c)
	l.mu.Unlock()
	return context.WithValue(ctx, listenerKey{}, accepter{l, c, &note})
}

// NoteOf returns where a server may note what it found out about a connection,
// once, in its http.Server.ConnContext: the note stays with a connection that is
// taken over and given back. nil: the connection is of no Listener.
func NoteOf(ctx context.Context) *any {
	a, _ := ctx.Value(listenerKey{}).(accepter)
	return a.note
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
		return returner{a.listener, *a.note}
	}
	return nil
}

type returner struct {
	l    *Listener
	note any
}

// Return implements [Returner].
func (r returner) Return(c net.Conn) bool {
	select {
	case r.l.back <- accepted{conn: c, note: r.note}:
		return true
	case <-r.l.closed:
		return false
	}
}
