//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/suspendaware"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/process"
)

// starters are connections to the keeper for starts: each is used by one
// caller at a time, who writes the request and reads the answer itself, by
// blocking calls. A reader in between, or Go's poller, would cost each start two
// thread switches.
type starters struct {
	run  *rundir.Dir
	idle chan *starter
	room chan struct{}               // one value for each connection that may still be used
	ping func(context.Context) error // asks the keeper whether it is there
}

const (
	// idleStarters bounds the connections that are kept; more are made at need.
	idleStarters = 8
	// filesEach: of so many descriptors that a program may open here, one is for a
	// connection. Without a bound many starts at a time leave the keeper no
	// descriptors to start anything with.
	filesEach   = 16
	maxStarters = 1024
)

// startTimeout bounds how long a start may take: the program may lie on a
// filesystem that hangs.
const startTimeout = 5 * time.Minute

// patience is how long a start waits for its answer without looking at its
// context; almost all are over in less than a millisecond.
const patience = 20 * time.Millisecond

func newStarters(run *rundir.Dir, ping func(context.Context) error) *starters {
	most := maxStarters
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil { // the keeper's is the same
		most = int(max(1, min(files.Cur/filesEach, maxStarters)))
	}
	return &starters{run: run, ping: ping, idle: make(chan *starter, min(idleStarters, most)), room: roomFor(most)}
}

func roomFor(most int) chan struct{} {
	room := make(chan struct{}, most)
	for range most {
		room <- struct{}{}
	}
	return room
}

// call sends one start and waits for the answer. When the context ends first,
// left is true, and late is called once with the answer, whenever it comes: the
// process runs, and must be known.
func (s *starters) call(ctx context.Context, req *wire.Spawn, late func(reply, error)) (rep reply, left bool, err error) {
	bound := suspendaware.New(unavailableAfter)
	for {
		rep, left, err := s.try(ctx, req, late)
		if err == nil || left || ctx.Err() != nil {
			return rep, left, err
		}
		// The keeper went away: the next one knows whether it was done.
		if bound.Over() {
			return reply{}, false, fmt.Errorf("%w: %w", process.ErrUnavailable, err)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return reply{}, false, err
		}
	}
}

func (s *starters) try(ctx context.Context, req *wire.Spawn, late func(reply, error)) (rep reply, left bool, err error) {
	c, err := s.get(ctx)
	if err != nil {
		return reply{}, false, err
	}
	if err := c.send(wire.AppendRequest(nil, 1, wire.OpSpawn, req)); err != nil {
		s.put(c, err)
		return reply{}, false, err
	}
	rep, err = c.receive()
	if err != errSlow {
		s.put(c, err)
		return rep, false, err
	}
	type answer struct {
		rep reply
		err error
	}
	answered, gone := make(chan answer), make(chan struct{})
	go func() {
		rep, err := c.receive()
		for end := time.Now().Add(startTimeout); err == errSlow && time.Now().Before(end); {
			rep, err = c.receive()
		}
		s.put(c, err)
		select {
		case answered <- answer{rep, err}:
		case <-gone:
			late(rep, err)
		}
	}()
	a, err := waitFor(ctx, answered, s.ping) // the program may lie on a slow disk
	if err != nil {
		close(gone)
		return reply{}, true, err
	}
	return a.rep, false, a.err
}

// waitFor waits for a value that the keeper's work brings about; not for a keeper that stands
// still, or is not there.
func waitFor[T any](ctx context.Context, from <-chan T, ping func(context.Context) error) (v T, err error) {
	look := time.NewTicker(lookAfter)
	defer look.Stop()
	for {
		select {
		case v = <-from:
			return v, nil
		case <-ctx.Done():
			return v, ctx.Err()
		case <-look.C:
			if err := ping(ctx); err != nil && ctx.Err() == nil {
				return v, err
			}
		}
	}
}

// get waits until it is the caller's turn, and returns a connection, which put takes back.
func (s *starters) get(ctx context.Context) (*starter, error) {
	select {
	case <-s.room:
	default:
		if _, err := waitFor(ctx, s.room, s.ping); err != nil {
			return nil, err
		}
	}
	select {
	case c := <-s.idle:
		return c, nil
	default:
	}
	c, err := dialStarter(s.run.Addr(rundir.KeeperSocket))
	if err != nil {
		s.room <- struct{}{}
	}
	return c, err
}

// put keeps a connection for the next start, unless there was trouble with it.
func (s *starters) put(c *starter, err error) {
	defer func() { s.room <- struct{}{} }()
	if err != nil {
		c.close()
		return
	}
	select {
	case s.idle <- c:
	default:
		c.close()
	}
}

func (s *starters) close() {
	for {
		select {
		case c := <-s.idle:
			c.close()
		default:
			return
		}
	}
}

// starter is one connection.
type starter struct {
	fd  int
	buf []byte // read and not yet handled
}

// errSlow: no answer came within patience; receive may be called again.
var errSlow = errors.New("the keeper has not answered yet")

func dialStarter(path string) (*starter, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	c := &starter{fd: fd}
	// A keeper that does not even read is dead, or stopped.
	read, write := unix.NsecToTimeval(patience.Nanoseconds()), unix.NsecToTimeval(unavailableAfter.Nanoseconds())
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &read), unix.SetsockoptTimeval(fd,
		unix.SOL_SOCKET, unix.SO_SNDTIMEO, &write))
	if err == nil {
		err = eintr.Do(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) })
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("connect to the keeper: %w", err)
	}
	return c, nil
}

func (c *starter) close() { unix.Close(c.fd) }

func (c *starter) send(b []byte) error {
	for len(b) > 0 {
		n, err := unix.SendmsgN(c.fd, b, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("ask the keeper: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// receive waits for one answer, which has no descriptors: for patience, then
// errSlow.
func (c *starter) receive() (reply, error) {
	for {
		f, rest, err := wire.Cut(c.buf)
		if err != nil {
			return reply{}, err
		}
		if f != nil {
			rep, _, err := parseReply(f)
			c.buf = append(c.buf[:0], rest...)
			return rep, err
		}
		if cap(c.buf)-len(c.buf) < 512 {
			c.buf = append(make([]byte, 0, 2*cap(c.buf)+1024), c.buf...)
		}
		n, err := unix.Read(c.fd, c.buf[len(c.buf):cap(c.buf)])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return reply{}, errSlow
		case err != nil:
			return reply{}, fmt.Errorf("answer of the keeper: %w", err)
		case n == 0:
			return reply{}, errLost
		}
		c.buf = c.buf[:len(c.buf)+n]
	}
}
