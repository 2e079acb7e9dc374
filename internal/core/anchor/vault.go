//go:build linux

package anchor

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/unixsock"
)

// vault holds the descriptors that a keeper deposited: in the anchor, and a
// mirror of it in the launcher, so that anchor and keeper may die together.
// Nothing is read from or written to any of them.
type vault struct {
	mu    sync.Mutex
	items map[wire.Ref]*item // guarded by mu
}

// item holds the descriptors of one process, by kind.
type item struct {
	fds fdstore.FDs
	// old: from before the last VaultMark. The next put replaces it as a whole; VaultSweep
	// removes it. Until then it is still valid, so a keeper that takes over never finds
	// less than its predecessor had.
	old bool
}

func newVault() *vault { return &vault{items: map[wire.Ref]*item{}} }

// nap is the pause between two looks at the socket, in ms. Deposits are safe in
// the socket's queue, so the anchor need not run for each: that would cost each
// short process a wake-up; with 5 ms, starts one after another still cost it a
// wake-up for every third. Before the queue is full the keeper writes its urgent
// eventfd, which ends the nap. So does the keeper for a drop that a reader waits for
// (the last writer of a stdin). The death of the keeper ends the nap, too: the next
// keeper waits for what this one deposited.
const nap = 20

func (v *vault) rest(sock int) {
	v.mu.Lock()
	urgent, ok := -1, false
	if global := v.items[wire.Ref{Slot: wire.VaultGlobal}]; global != nil {
		urgent, ok = global.fds[wire.FDUrgent]
	}
	v.mu.Unlock()
	if !ok {
		return
	}
	fds := []unix.PollFd{{Fd: int32(urgent), Events: unix.POLLIN}, {Fd: int32(sock)}} // of sock, the hang-up alone
	if _, err := unix.Poll(fds, nap); err == nil && fds[0].Revents != 0 {
		var b [8]byte
		unix.Read(urgent, b[:])
	}
}

// serve takes a keeper's messages until its socket ends.
func (v *vault) serve(sock int) {
	defer unix.Close(sock)
	buf, rights := make([]byte, 4096), unixsock.Control(unixsock.MaxFDs)
	first := true
	for {
		n, fds, err := unixsock.Receive(sock, buf, rights, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			if !first { // a keeper that comes asks for what there is, and its processes wait
				v.rest(sock)
			}
			n, fds, err = unixsock.Receive(sock, buf, rights, 0)
		}
		if err == unix.ECONNRESET {
			// The keeper died with a message of ours unread. The kernel says so once,
			// before it gives what the keeper has deposited.
			continue
		}
		if err != nil || n == 0 {
			return
		}
		first = false
		m, err := wire.ParseVault(buf[:n])
		if err != nil {
			unixsock.Close(fds)
			return
		}
		v.mu.Lock()
		switch m.Op {
		case wire.VaultPut:
			failpoint.Hit(failpoint.VaultPut)
			v.put(m, fds)
			fds = nil
		case wire.VaultDrop:
			v.drop(m)
		case wire.VaultMark:
			for _, it := range v.items {
				it.old = true
			}
			failpoint.Hit(failpoint.VaultMarked)
		case wire.VaultSweep:
			v.sweep()
		case wire.VaultFetch:
			v.settle()
			err = v.sendAll(sock)
		}
		v.mu.Unlock()
		unixsock.Close(fds)
		if err != nil {
			return
		}
	}
}

func (v *vault) put(m wire.VaultMessage, fds []int) {
	if len(fds) != len(m.Kinds) {
		unixsock.Close(fds)
		return
	}
	it := v.items[m.Ref]
	if it == nil && len(fds) == 0 {
		return
	}
	if it == nil {
		it = &item{fds: make(fdstore.FDs, len(fds))}
		v.items[m.Ref] = it
	}
	if it.old {
		it.fds.Close()
		clear(it.fds)
		it.old = false
	}
	for i, kind := range m.Kinds {
		if was, ok := it.fds[kind]; ok {
			unix.Close(was)
		}
		it.fds[kind] = fds[i]
	}
}

func (v *vault) drop(m wire.VaultMessage) {
	it := v.items[m.Ref]
	if it == nil {
		return
	}
	if len(m.Kinds) == 0 {
		it.fds.Close()
		delete(v.items, m.Ref)
		return
	}
	for _, kind := range m.Kinds {
		if fd, ok := it.fds[kind]; ok {
			unix.Close(fd)
			delete(it.fds, kind)
		}
	}
}

// sweep forgets what did not come again since the mark.
func (v *vault) sweep() {
	for ref, it := range v.items {
		if it.old {
			v.drop(wire.VaultMessage{Ref: ref})
		}
	}
}

// settle makes all that is held as good as new: the keeper that asks for it continues from
// it. A mark of the keeper before, which died before its sweep, must not have the first
// deposit of this one take the place of the whole.
func (v *vault) settle() {
	for _, it := range v.items {
		it.old = false
	}
}

// sendAll hands everything to a new keeper; the vault keeps its own copies.
func (v *vault) sendAll(sock int) error {
	for ref, it := range v.items {
		m := wire.VaultMessage{Op: wire.VaultItem, Ref: ref}
		var fds []int
		for kind, fd := range it.fds {
			m.Kinds, fds = append(m.Kinds, kind), append(fds, fd)
		}
		if err := unixsock.Send(sock, m.Append(nil), fds, 0); err != nil {
			return err
		}
		failpoint.Hit(failpoint.VaultSent)
	}
	end := wire.VaultMessage{Op: wire.VaultEnd}
	return unixsock.Send(sock, end.Append(nil), nil, 0)
}
