//go:build linux

package client

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// waker waits until the keeper signals that the board has changed. It waits in a
// blocking call on a thread of its own: Go's poller would add two thread switches
// between the end of a process and the reader that waits for it.
type waker struct {
	wake, end int // eventfds; wake is shared with the keeper and non-blocking
	once      sync.Once
}

// newWaker takes over wake.
func newWaker(wake int) (*waker, error) {
	end, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(wake)
		return nil, err
	}
	return &waker{wake: wake, end: end}, nil
}

// wait returns true after a change, maybe of long ago, and false after stop. It
// must not be called again then: it has given the descriptors back.
func (w *waker) wait() bool {
	fds := []unix.PollFd{{Fd: int32(w.wake), Events: unix.POLLIN}, {Fd: int32(w.end), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR && err != unix.EAGAIN {
			return true // ENOMEM: look at the board all the same
		}
		if fds[1].Revents != 0 {
			w.discard()
			return false
		}
		var count [8]byte
		if fds[0].Revents != 0 {
			unix.Read(w.wake, count[:]) // EAGAIN: another server took it, and it was for us too
			return true
		}
	}
}

// discard closes the descriptors of a waker on which nobody waits.
func (w *waker) discard() {
	unix.Close(w.wake)
	unix.Close(w.end)
}

// pause waits for d. The error is that of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pulse announces something that is done again and again to the callers that wait for
// the next time.
type pulse struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next time; nil: nobody waits; guarded by mu
}

func (p *pulse) wait() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = make(chan struct{})
	}
	return p.next
}

func (p *pulse) announce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next != nil {
		close(p.next)
		p.next = nil
	}
}

// stop ends wait, now or when it is called next.
func (w *waker) stop() {
	w.once.Do(func() { unix.Write(w.end, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })
}
