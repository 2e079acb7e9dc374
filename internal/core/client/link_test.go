//go:build linux

package client

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/unixsock"
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
				unixsock.Close(rep.fds)
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

// TestAnAnswerThatIsNoneLeaksNothing: the descriptors that came with it are closed.
func TestAnAnswerThatIsNoneLeaksNothing(t *testing.T) {
	hello := wire.AppendAnswer(nil, 1, 1, nil)
	broken := slices.Clone(hello)
	broken[12] |= 1 // an Error follows, which there is none of
	for name, tt := range map[string]struct {
		fds    int
		answer []byte
	}{
		"an impossible length":          {1, []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		"an error that cannot be read":  {1, broken},
		"the end within an answer":      {1, hello[:8]},
		"more descriptors than are due": {100, wire.AppendAnswer(nil, 1, 100, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := pair()
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			defer theirs.Close()
			input, output, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer input.Close()
			_, _, err = theirs.WriteMsgUnix(tt.answer, unix.UnixRights(slices.Repeat([]int{int(output.Fd())}, tt.fds)...), nil)
			output.Close()
			if err != nil {
				t.Fatal(err)
			}
			theirs.CloseWrite()
			if _, rep, err := (&reader{conn: ours}).next(); err == nil || len(rep.fds) != 0 {
				t.Errorf("got %+v, %v; want an error", rep, err)
			}
			fds := []unix.PollFd{{Fd: int32(input.Fd())}}
			if n, err := unix.Poll(fds, 0); err != nil || n != 1 || fds[0].Revents&unix.POLLHUP == 0 {
				t.Error("a descriptor of it is open")
			}
		})
	}
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
