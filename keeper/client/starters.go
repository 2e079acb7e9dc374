//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/tend-run/tend/keeper/rundir"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
)

// starters are connections to the keeper for starts: each is used by one
// caller at a time, who writes the request and reads the answer itself. A
// reader in between would cost each start two thread switches.
type starters struct {
	run  *rundir.Dir
	idle chan *reader
}

// idleStarters bounds the connections that are kept; more are made at need.
const idleStarters = 8

// startTimeout bounds how long a start may take: the program may lie on a
// filesystem that hangs.
const startTimeout = 5 * time.Minute

func newStarters(run *rundir.Dir) *starters {
	return &starters{run: run, idle: make(chan *reader, idleStarters)}
}

// call sends one start and waits for the answer. When the context ends first,
// late is called with the answer, whenever it comes: the process runs, and must
// be known.
func (s *starters) call(ctx context.Context, body []byte, late func(reply)) (reply, error) {
	giveUp := time.Now().Add(unavailableAfter)
	for {
		rep, err := s.try(ctx, body, late)
		if err == nil || ctx.Err() != nil {
			return rep, err
		}
		// The keeper went away: the next one knows whether it was done.
		if time.Now().After(giveUp) {
			return reply{}, fmt.Errorf("%w: %w", process.ErrUnavailable, err)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
	}
}

func (s *starters) try(ctx context.Context, body []byte, late func(reply)) (reply, error) {
	r, err := s.get()
	if err != nil {
		return reply{}, err
	}
	r.conn.SetDeadline(time.Now().Add(startTimeout))
	if _, err := r.conn.Write(frame(1, wire.OpSpawn, body)); err != nil {
		r.conn.Close()
		return reply{}, err
	}
	stop := context.AfterFunc(ctx, func() { r.conn.SetReadDeadline(time.Unix(1, 0)) })
	_, rep, err := r.next()
	if stop() && err == nil {
		s.put(r)
		return rep, nil
	}
	if err == nil { // the answer and the end of the context came together
		r.conn.Close()
		return rep, nil
	}
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		go func() {
			defer r.conn.Close()
			r.conn.SetDeadline(time.Now().Add(startTimeout))
			if _, rep, err := r.next(); err == nil {
				late(rep)
			}
		}()
		return reply{}, ctx.Err()
	}
	r.conn.Close()
	return reply{}, err
}

func (s *starters) get() (*reader, error) {
	select {
	case r := <-s.idle:
		return r, nil
	default:
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.run.Addr(rundir.KeeperSocket), Net: "unix"})
	if err != nil {
		return nil, err
	}
	return &reader{conn: c}, nil
}

func (s *starters) put(r *reader) {
	select {
	case s.idle <- r:
	default:
		r.conn.Close()
	}
}

func (s *starters) close() {
	for {
		select {
		case r := <-s.idle:
			r.conn.Close()
		default:
			return
		}
	}
}
