//go:build linux

package client

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/wire"
)

// The descriptors of an answer that comes just when nobody waits for it any more
// are closed: one of them is an input, which would never end.
func TestAnAnswerThatComesAsItsCallerLeavesHoldsNothing(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(nil, slog.New(slog.DiscardHandler), nil)
	l.conn = ours
	read := make(chan struct{})
	go func() {
		defer close(read)
		l.read(ours)
	}()
	input, output, err := os.Pipe() // whose end tells that every copy is closed
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	keeper := reader{conn: theirs}
	for range 5000 {
		ctx, cancel := context.WithCancel(t.Context())
		var both sync.WaitGroup
		both.Go(func() {
			rep, err := l.try(ctx, 0, nil)
			if err == nil {
				closeFDs(rep.fds)
			}
		})
		req, _, err := keeper.next()
		if err != nil {
			t.Fatal(err)
		}
		answer := wire.AppendAnswer(nil, req, 1, nil) // one descriptor comes with it
		both.Go(func() {
			if _, _, err := theirs.WriteMsgUnix(answer, unix.UnixRights(int(output.Fd())), nil); err != nil {
				t.Error(err)
			}
		})
		cancel()
		both.Wait()
	}
	output.Close()
	// The link takes what was sent before it meets the end.
	theirs.Close()
	<-read
	fds := []unix.PollFd{{Fd: int32(input.Fd())}}
	if n, err := unix.Poll(fds, 0); err != nil || n != 1 || fds[0].Revents&unix.POLLHUP == 0 {
		t.Errorf("a copy is still open")
	}
	ours.Close()
}

func pair() (ours, theirs *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			return nil, nil, err
		}
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1], nil
}
