//go:build linux

package keeper

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/wire"
)

// vault is the keeper's side of the anchor's vault. Deposits never wait: when
// the anchor does not take one (it is dead, stopped or slow), a new epoch
// begins, and a goroutine hands every process over again as soon as an anchor
// listens. Until it reaches a process, that one's own changes are not sent:
// its descriptors go as a whole, with the epoch noted, under the process's
// lock.
type vault struct {
	mu     sync.Mutex
	sock   int    // -1: no anchor; guarded by mu
	epoch  uint32 // guarded by mu
	behind bool   // catchUp runs; guarded by mu
	urgent int    // eventfd that ends the anchor's nap; set once before the workers start
	// refill hands over everything by put with whole set; done reports each
	// result. Set once before the workers start.
	refill func(again func(put func() bool) bool) bool
}

func newVault(sock int) *vault { return &vault{sock: sock, epoch: 1} }

// held are the descriptors of one process, or the global ones, by kind.
type held map[byte]int

// fetch takes all that a former keeper left.
func (v *vault) fetch() (map[wire.Ref]held, error) {
	all := map[wire.Ref]held{}
	if v.sock < 0 {
		return all, nil
	}
	ask := wire.VaultMessage{Op: wire.VaultFetch}
	if err := wire.Send(v.sock, ask.Append(nil), nil); err != nil {
		return all, err
	}
	buf := make([]byte, 4096)
	for {
		n, fds, err := wire.Recv(v.sock, buf, 0)
		if err != nil {
			return all, err
		}
		if n == 0 {
			return all, fmt.Errorf("the anchor closed the connection")
		}
		m, err := wire.ParseVault(buf[:n])
		if err != nil || m.Op != wire.VaultItem && m.Op != wire.VaultEnd || len(m.Kinds) != len(fds) {
			return all, fmt.Errorf("unexpected message %v of the anchor", m)
		}
		if m.Op == wire.VaultEnd {
			return all, nil
		}
		h := all[m.Ref]
		if h == nil {
			h = held{}
			all[m.Ref] = h
		}
		for i, kind := range m.Kinds {
			h[kind] = fds[i]
		}
	}
}

// put deposits descriptors of one process and reports whether it was sent.
// *epoch is the process's, guarded by its lock; whole: these are all it has.
func (v *vault) put(epoch *uint32, whole bool, ref wire.Ref, kinds []byte, fds []int) bool {
	m := wire.VaultMessage{Op: wire.VaultPut, Ref: ref, Kinds: kinds}
	return v.send(epoch, whole, m.Append(nil), fds)
}

// drop lets the anchor close its copies; no kinds: all of the process.
func (v *vault) drop(epoch *uint32, ref wire.Ref, kinds ...byte) {
	m := wire.VaultMessage{Op: wire.VaultDrop, Ref: ref, Kinds: kinds}
	v.send(epoch, false, m.Append(nil), nil)
}

// hurry makes the anchor look at once: somebody waits for a drop.
func (v *vault) hurry() {
	one := [8]byte{1}
	unix.Write(v.urgent, one[:])
}

func (v *vault) send(epoch *uint32, whole bool, b []byte, fds []int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sock < 0 || !whole && *epoch != v.epoch {
		return false
	}
	err := sendNow(v.sock, b, fds)
	if err == nil {
		*epoch = v.epoch
		return true
	}
	v.epoch++
	if gone(err) {
		unix.Close(v.sock)
		v.sock = -1
	} else if !v.behind {
		v.behind = true
		go v.catchUp()
	}
	return false
}

func gone(err error) bool {
	return err == unix.EPIPE || err == unix.ECONNRESET || err == unix.EBADF || err == unix.ENOTCONN
}

func sendNow(sock int, b []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		if _, err := unix.SendmsgN(sock, b, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != unix.EINTR {
			return err
		}
	}
}

// adopt connects a new anchor and hands everything over.
func (v *vault) adopt(sock int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sock >= 0 {
		unix.Close(v.sock)
	}
	v.sock = sock
	v.epoch++
	if !v.behind {
		v.behind = true
		go v.catchUp()
	}
}

// catchUp tells the anchor to forget all and hands everything over, until a
// whole pass belongs to one epoch or no anchor is left. It waits for room in
// the socket without holding a lock.
func (v *vault) catchUp() {
	reset := wire.VaultMessage{Op: wire.VaultReset}
	for {
		v.mu.Lock()
		epoch, sock := v.epoch, v.sock
		if sock < 0 {
			v.behind = false
			v.mu.Unlock()
			return
		}
		err := sendNow(sock, reset.Append(nil), nil)
		v.mu.Unlock()
		complete := err == nil && v.refill(func(put func() bool) bool {
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
		if gone(err) {
			unix.Close(v.sock)
			v.sock = -1
			v.epoch++
		}
		if complete && v.epoch == epoch {
			v.behind = false
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

// complete: an anchor is connected and holds everything.
func (v *vault) complete() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sock >= 0 && !v.behind
}
