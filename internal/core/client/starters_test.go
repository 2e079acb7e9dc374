//go:build linux

package client

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/support/proctest"
)

// However many start at a time, the connections to the keeper are so many at most.
func TestStartsTakeABoundedNumberOfConnections(t *testing.T) {
	run := proctest.Value(rundir.Open(t.TempDir()))(t)
	l := proctest.Value(net.Listen("unix", run.Addr(rundir.KeeperSocket)))(t)
	defer l.Close()
	s := newStarters(run, func(context.Context) error { return nil })
	if got := cap(s.room); got < 1 || got > maxStarters {
		t.Errorf("%d connections at most", got)
	}
	s.room = roomFor(2)
	defer s.close()
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for _, trouble := range []error{nil, errLost} { // a connection that is kept, and one that is not
		a, b := proctest.Value(s.get(t.Context()))(t), proctest.Value(s.get(t.Context()))(t)
		if _, err := s.get(late); !errors.Is(err, context.Canceled) {
			t.Fatalf("a third is given out: %v", err)
		}
		s.put(a, trouble)
		c := proctest.Value(s.get(t.Context()))(t)
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

// A keeper that is busy accepts late, and the kernel does not begin a connect with a time
// limit again after a signal.
func TestAConnectionToTheKeeperIsMadeWhateverSignalsCome(t *testing.T) {
	run := proctest.Value(rundir.Open(t.TempDir()))(t)
	l := proctest.Value(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(l)
	addr := run.Addr(rundir.KeeperSocket)
	proctest.Must(t, errors.Join(unix.Bind(l, &unix.SockaddrUnix{Name: addr}), unix.Listen(l, 0)))
	first := proctest.Value(dialStarter(addr))(t) // there is room for no second one
	defer first.close()

	proctest.InAStorm(t, func(sent *atomic.Int64) {
		accepted := make(chan error, 1)
		go func() {
			for sent.Load() < 2000 {
				time.Sleep(time.Millisecond)
			}
			fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
			unix.Close(fd)
			accepted <- err
		}()
		second, err := dialStarter(addr)
		proctest.Must(t, errors.Join(err, <-accepted))
		second.close()
	})
}
