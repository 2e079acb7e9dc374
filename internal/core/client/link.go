//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/suspendaware"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

// link is the connection to the keeper. When the keeper dies the link connects
// to the next one, and requests that may be repeated are.
type link struct {
	run *rundir.Dir
	log *slog.Logger
	// connected is called with each new keeper's hello, before any request
	// goes to it. It takes over the two descriptors.
	connected func(h wire.Hello, board, wake int) error

	mu      sync.Mutex
	raw     *net.UnixConn           // the last that was dialed; guarded by mu
	conn    *net.UnixConn           // nil while there is no keeper; guarded by mu
	up      chan struct{}           // closed while conn != nil; guarded by mu
	next    uint64                  // guarded by mu
	pending map[uint64]chan<- reply // guarded by mu
	wmu     sync.Mutex              // one frame at a time
	closed  chan struct{}
	done    chan struct{}
}

type reply struct {
	body []byte
	werr *wire.Error
	fds  []int
	err  error // errLost
}

// errLost: the connection broke after the request was sent.
var errLost = errors.New("the keeper went away before it answered")

// unavailableAfter bounds how long a request waits for a keeper to be there. Time in which
// this process did not run does not count: the keeper may have stood still with it.
const unavailableAfter = 10 * time.Second

func newLink(run *rundir.Dir, log *slog.Logger, connected func(wire.Hello, int, int) error) *link {
	return &link{run: run, log: log, connected: connected, up: make(chan struct{}), pending: map[uint64]chan<- reply{},
		closed: make(chan struct{}), done: make(chan struct{})}
}

// keep connects, reads answers, and connects again, until close. That a keeper
// went is reported once there is another, or none for long: at the end of the
// daemon the keeper goes first, and this link is closed.
func (l *link) keep() {
	defer close(l.done)
	var gone error // why the connection before ended
	for {
		conn, err := l.dial()
		if err != nil {
			return // closed
		}
		if l.dialed(conn) {
			if err = l.greet(conn); err == nil {
				if gone != nil {
					l.log.Warn("keeper connection ended, connected again", "err", gone)
				}
				gone = l.read(conn)
			}
		}
		conn.Close()
		l.drop()
		if l.isClosed() {
			return
		}
		if err != nil {
			l.log.Warn("keeper not reached, trying again", "err", err)
		}
	}
}

func (l *link) dial() (*net.UnixConn, error) {
	late := time.After(unavailableAfter)
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.run.Addr(rundir.KeeperSocket), Net: "unix"})
		if err == nil {
			return c, nil
		}
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		case <-late:
			l.log.Warn("keeper not reached, trying again", "err", err)
		case <-time.After(pause):
		}
	}
}

// dialed notes the connection, so that close ends it though nobody answers on
// it: a keeper that has ended leaves its socket behind. It reports false after
// close.
func (l *link) dialed(c *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.raw = c
	return !l.isClosed()
}

func (l *link) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// greet says hello and maps the keeper's board.
func (l *link) greet(c *net.UnixConn) error {
	if _, err := c.Write(wire.AppendRequest(nil, 1, wire.OpHello, helloRequest)); err != nil {
		return err
	}
	c.SetReadDeadline(time.Now().Add(unavailableAfter))
	r := reader{conn: c}
	req, rep, err := r.next()
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	c.SetReadDeadline(time.Time{})
	if req != 1 || rep.werr != nil || len(rep.fds) != 2 {
		unixsock.Close(rep.fds)
		return fmt.Errorf("the keeper's hello is not understood (%v)", rep.werr)
	}
	h, err := wire.ParseHello(rep.body)
	if err != nil {
		unixsock.Close(rep.fds)
		return err
	}
	if err := l.connected(h, rep.fds[0], rep.fds[1]); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = c
	close(l.up)
	return nil
}

func (l *link) read(c *net.UnixConn) error {
	r := reader{conn: c}
	for {
		req, rep, err := r.next()
		if err != nil {
			return err
		}
		l.mu.Lock()
		ch := l.pending[req]
		delete(l.pending, req)
		if ch != nil {
			ch <- rep // it has room
		}
		l.mu.Unlock()
		if ch == nil {
			unixsock.Close(rep.fds)
		}
	}
}

// drop ends what waits for answers.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn = nil
		l.up = make(chan struct{})
	}
	for req, ch := range l.pending {
		ch <- reply{err: errLost}
		delete(l.pending, req)
	}
}

func (l *link) close() {
	close(l.closed)
	l.mu.Lock()
	if l.raw != nil {
		l.raw.Close()
	}
	l.mu.Unlock()
	<-l.done
}

// call sends a request and waits for its answer. With again, a request whose
// answer was lost is repeated with the next keeper; repeated tells so.
func (l *link) call(ctx context.Context, op byte, body wire.Body, again bool) (rep reply, repeated bool, err error) {
	ctx, cancel := suspendaware.Context(ctx, callBound(op))
	defer cancel()
	for {
		rep, err = l.try(ctx, op, body)
		if !errors.Is(err, errLost) || !again {
			break
		}
		repeated = true
	}
	switch {
	case errors.Is(err, errLost):
		return rep, repeated, fmt.Errorf("%w: %w", process.ErrUnavailable, err)
	case errors.Is(err, context.DeadlineExceeded):
		return rep, repeated, fmt.Errorf("%w: %s", process.ErrUnavailable, l.run.Describe("keeper"))
	}
	return rep, repeated, err
}

// callBound is longer for a kill, which waits for the kernel, and for the first container of a keeper, which looks
// through all that the machine shows in it: a cold or busy disk takes its time.
func callBound(op byte) time.Duration {
	switch op {
	case wire.OpKill, wire.OpKillNamed:
		return 30 * time.Second
	case wire.OpContainerMake, wire.OpContainerCan:
		return 2 * time.Minute
	}
	return unavailableAfter
}

// await waits until there is a keeper.
func (l *link) await(ctx context.Context, up <-chan struct{}) error {
	ctx, cancel := suspendaware.Context(ctx, unavailableAfter)
	defer cancel()
	select {
	case <-up:
		return nil
	case <-l.closed:
		return process.ErrUnavailable
	case <-ctx.Done():
		return ended(ctx)
	}
}

func (l *link) try(ctx context.Context, op byte, body wire.Body) (reply, error) {
	for {
		l.mu.Lock()
		if l.conn != nil {
			break
		}
		up := l.up
		l.mu.Unlock()
		if err := l.await(ctx, up); err != nil {
			return reply{}, err
		}
	}
	conn := l.conn
	l.next++
	req := l.next
	ch := make(chan reply, 1)
	l.pending[req] = ch
	l.mu.Unlock()
	l.write(conn, req, op, body)
	look := time.NewTicker(lookAfter)
	defer look.Stop()
	for {
		err := error(nil)
		select {
		case rep := <-ch:
			return rep, rep.err
		case <-ctx.Done():
			err = ended(ctx)
		case <-look.C:
			if op == wire.OpHello || l.ping(ctx) == nil {
				continue // what was asked takes that long
			}
			err = context.DeadlineExceeded
		}
		l.mu.Lock()
		delete(l.pending, req)
		l.mu.Unlock()
		select {
		case rep := <-ch: // it came at the same time
			unixsock.Close(rep.fds)
		default:
		}
		return reply{}, err
	}
}

// ended is why a context has ended: its time is over, or its owner wanted no more.
func ended(ctx context.Context) error {
	if context.Cause(ctx) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// How long the keeper may take to answer that it is there, and after what time,
// again and again, one that has not answered a request is asked.
const (
	answerBound = 2 * time.Second
	lookAfter   = 2 * time.Second
)

// askHello asks the keeper for its facts, which it has to say soon.
func (l *link) askHello(ctx context.Context) (wire.Hello, error) {
	bound, cancel := suspendaware.Context(ctx, answerBound)
	defer cancel()
	return l.hello(bound)
}

func (l *link) hello(ctx context.Context) (h wire.Hello, err error) {
	rep, _, err := l.call(ctx, wire.OpHello, helloRequest, true)
	if err != nil {
		return h, err
	}
	unixsock.Close(rep.fds)
	return wire.ParseHello(rep.body)
}

// ping asks whether the keeper is there.
func (l *link) ping(ctx context.Context) error {
	_, err := l.askHello(ctx)
	return err
}

// isUp returns a channel that is closed while there is a keeper.
func (l *link) isUp() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// notify sends a request without an answer, if a keeper is there: the board
// holds what matters.
func (l *link) notify(op byte, body wire.Body) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		l.write(conn, 0, op, body)
	}
}

// write sends a frame. A failure needs no report: the reader of the connection
// meets it too, and drop answers all callers that wait.
func (l *link) write(conn *net.UnixConn, req uint64, op byte, body wire.Body) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if _, err := conn.Write(wire.AppendRequest(nil, req, op, body)); err != nil {
		conn.Close()
	}
}

// reader takes frames and their descriptors from the stream. Descriptors
// arrive in the order of the frames that carry them, not after them.
type reader struct {
	conn *net.UnixConn
	buf  []byte
	fds  []int
	oob  [256]byte
}

// next waits for one answer. After an error the reader is of no use, and holds nothing.
func (r *reader) next() (req uint64, rep reply, err error) {
	defer func() {
		if err != nil {
			unixsock.Close(append(r.fds, rep.fds...))
			r.fds, rep.fds = nil, nil
		}
	}()
	for {
		f, rest, err := wire.Cut(r.buf)
		if err != nil {
			return 0, reply{}, err
		}
		if f != nil {
			rep, n, err := parseReply(f)
			if n = min(n, len(r.fds)); n > 0 {
				rep.fds = append([]int(nil), r.fds[:n]...)
				r.fds = append(r.fds[:0], r.fds[n:]...)
			}
			req = f.Number()
			r.buf = append(r.buf[:0], rest...)
			return req, rep, err
		}
		chunk := make([]byte, 4096)
		n, oobn, flags, _, err := r.conn.ReadMsgUnix(chunk, r.oob[:])
		if err != nil {
			return 0, reply{}, err
		}
		fds, err := unixsock.Rights(r.oob[:oobn], flags)
		if err != nil {
			return 0, reply{}, err
		}
		r.fds = append(r.fds, fds...)
		if n == 0 {
			return 0, reply{}, net.ErrClosed
		}
		r.buf = append(r.buf, chunk[:n]...)
	}
}

// parseReply reads an answer's frame but for its descriptors, of which there are
// fds.
func parseReply(f wire.Frame) (rep reply, fds int, err error) {
	fds, body, werr, err := f.Answer()
	return reply{body: append([]byte(nil), body...), werr: werr}, fds, err
}
