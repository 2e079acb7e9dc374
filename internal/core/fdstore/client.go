//go:build linux

package fdstore

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/unixsock"
)

// Client is the keeper's side of one vault.
type Client struct {
	mu     sync.Mutex
	sock   int    // -1: nobody; guarded by mu
	epoch  uint32 // guarded by mu
	behind bool   // catchUp runs; guarded by mu
	urgent int    // eventfd that ends the holder's nap
	queued int    // messages since the nap was last ended; guarded by mu
	// Refill hands over everything by Put with whole set; again repeats one
	// until it is taken. Set once, before the first call of another goroutine.
	Refill func(again func(put func() bool) bool) bool
	// OnLost is called, on a goroutine of its own, when the holder hung up; or
	// nil. Set as Refill is.
	OnLost func()
}

// maxQueued is how many messages may wait for a holder that naps: the kernel's
// default buffer holds three times as many.
const maxQueued = 64

// New makes a client of the holder at the other end of sock, which becomes the
// client's; -1: there is none yet.
func New(sock int) (*Client, error) {
	urgent, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &Client{sock: sock, epoch: 1, urgent: urgent}, nil
}

// Put deposits descriptors of one process. It reports false if the holder did not
// accept them, or lacks earlier ones: then Refill sends them. whole: these are all
// descriptors of the process, so earlier ones do not matter.
func (v *Client) Put(epoch *uint32, whole bool, ref wire.Ref, kinds []byte, fds []int) bool {
	m := wire.VaultMessage{Op: wire.VaultPut, Ref: ref, Kinds: kinds}
	return v.send(epoch, whole, m.Append(nil), fds)
}

// Drop has the holder close its copies; no kinds: all of the process.
func (v *Client) Drop(epoch *uint32, ref wire.Ref, kinds ...byte) {
	m := wire.VaultMessage{Op: wire.VaultDrop, Ref: ref, Kinds: kinds}
	v.send(epoch, false, m.Append(nil), nil)
}

// Hurry makes the holder look at once.
func (v *Client) Hurry() {
	one := [8]byte{1}
	unix.Write(v.urgent, one[:])
}

func (v *Client) send(epoch *uint32, whole bool, b []byte, fds []int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sock < 0 || !whole && *epoch != v.epoch {
		return false
	}
	err := sendNow(v.sock, b, fds)
	if err == nil {
		*epoch = v.epoch
		if v.queued++; v.queued >= maxQueued {
			v.Hurry()
			v.queued = 0
		}
		return true
	}
	if gone(err) {
		v.hangUp()
	} else {
		v.epoch++
		v.startCatchUp()
	}
	return false
}

func gone(err error) bool {
	return err == unix.EPIPE || err == unix.ECONNRESET || err == unix.EBADF || err == unix.ENOTCONN
}

func sendNow(sock int, b []byte, fds []int) error {
	return unixsock.Send(sock, b, fds, unix.MSG_DONTWAIT)
}

// Connect connects a new holder and hands everything over.
func (v *Client) Connect(sock int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sock >= 0 {
		unix.Close(v.sock)
	}
	v.sock = sock
	v.epoch++
	v.startCatchUp()
}

// startCatchUp hands everything over again. v.mu is held.
func (v *Client) startCatchUp() {
	if !v.behind {
		v.behind = true
		go v.catchUp()
	}
}

// Resend is for a holder that is connected but does not have everything.
func (v *Client) Resend() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.epoch++
	v.startCatchUp()
}

// Disconnect is for a holder that hung up.
func (v *Client) Disconnect() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hangUp()
}

// hangUp: v.mu is held.
func (v *Client) hangUp() {
	if v.sock < 0 {
		return
	}
	unix.Close(v.sock)
	v.sock = -1
	v.epoch++
	if v.OnLost != nil {
		go v.OnLost()
	}
}

// catchUp hands everything over and lets the holder forget the rest, until a
// whole pass belongs to one epoch or nobody is left to hold it. It waits for
// room in the socket without holding a lock.
func (v *Client) catchUp() {
	mark, sweep := wire.VaultMessage{Op: wire.VaultMark}, wire.VaultMessage{Op: wire.VaultSweep}
	for {
		v.mu.Lock()
		// Behind the mark, what a process changes would take the place of all
		// that is held of it: each pass is an epoch of its own.
		v.epoch++
		epoch, sock := v.epoch, v.sock
		if sock < 0 {
			v.behind = false
			v.mu.Unlock()
			return
		}
		err := sendNow(sock, mark.Append(nil), nil)
		v.mu.Unlock()
		complete := err == nil && v.Refill(func(put func() bool) bool {
			for try := 0; !put(); try++ {
				v.mu.Lock()
				sock := v.sock
				v.mu.Unlock()
				if sock < 0 || try > 1000 {
					return false
				}
				unix.Poll([]unix.PollFd{{Fd: int32(sock), Events: unix.POLLOUT}}, 10)
				time.Sleep(time.Millisecond)
			}
			return true
		})
		v.mu.Lock()
		if gone(err) && v.sock == sock {
			v.hangUp()
		}
		if complete && v.epoch == epoch && sendNow(sock, sweep.Append(nil), nil) == nil {
			v.behind = false
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

// Connected reports whether there is a holder.
func (v *Client) Connected() bool { return v.Socket() >= 0 }

// Complete reports whether the holder is connected and has everything.
func (v *Client) Complete() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, complete := v.Locked()
	return complete
}

// Socket is the connection to the holder; -1: there is none. The client's.
func (v *Client) Socket() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sock
}

// Urgent is the eventfd by which Hurry ends the holder's nap: wire.FDUrgent.
func (v *Client) Urgent() int { return v.urgent }

// Lock stops everything that the client sends, until Unlock: an upgrade executes
// another program between two messages.
func (v *Client) Lock() { v.mu.Lock() }

// Unlock ends Lock.
func (v *Client) Unlock() { v.mu.Unlock() }

// Locked is Socket and Complete for the caller of Lock.
func (v *Client) Locked() (sock int, complete bool) { return v.sock, v.sock >= 0 && !v.behind }
