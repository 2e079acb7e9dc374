//go:build linux

package client

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/keeper/rundir"
)

// However many start at a time, the connections to the keeper are so many at most.
func TestStartsTakeABoundedNumberOfConnections(t *testing.T) {
	run := scene.Value(rundir.Open(t.TempDir()))(t)
	l := scene.Value(net.Listen("unix", run.Addr(rundir.KeeperSocket)))(t)
	defer l.Close()
	s := newStarters(run, func(context.Context) error { return nil })
	if got := cap(s.room); got < 1 || got > maxStarters {
		t.Errorf("%d connections at most", got)
	}
	s.room = make(chan struct{}, 2)
	defer s.close()
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for _, trouble := range []error{nil, errLost} { // a connection that is kept, and one that is not
		a, b := scene.Value(s.get(t.Context()))(t), scene.Value(s.get(t.Context()))(t)
		if _, err := s.get(late); !errors.Is(err, context.Canceled) {
			t.Fatalf("a third is given out: %v", err)
		}
		s.put(a, trouble)
		c := scene.Value(s.get(t.Context()))(t)
		s.put(b, trouble)
		s.put(c, trouble)
	}
	l.Close()
	s.close()
	for range 3 { // what could not be connected takes no room
		if _, err := s.get(t.Context()); err == nil {
			t.Fatal("a keeper that is gone was reached")
		}
	}
}
