//go:build linux

package keeper

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
)

// The two who hold copies of the descriptors.
const (
	inAnchor = iota
	inMirror // the launcher
	vaultCount
)

// vaults are both. A deposit goes to each before a start is answered, so the
// keeper may die together with either one of them.
type vaults [vaultCount]*vault

// epochs are a process's, one for each vault; guarded by its lock.
type epochs [vaultCount]uint32

// put deposits descriptors of one process with both. whole: these are all it
// has.
func (vs *vaults) put(e *epochs, whole bool, ref wire.Ref, kinds []byte, fds []int) {
	for i, v := range vs {
		v.put(&e[i], whole, ref, kinds, fds)
	}
}

// drop lets both close their copies; no kinds: all of the process.
func (vs *vaults) drop(e *epochs, ref wire.Ref, kinds ...byte) {
	for i, v := range vs {
		v.drop(&e[i], ref, kinds...)
	}
}

// hurry makes both look at once: somebody waits for a drop.
func (vs *vaults) hurry() {
	for _, v := range vs {
		v.hurry()
	}
}

// vault is the keeper's side of one vault. Deposits never wait: when the holder
// does not take one (it is dead, stopped or slow), a new epoch begins, and a
// goroutine hands every process over again as soon as there is a holder that
// listens. Until it reaches a process, that one's own changes are not sent: its
// descriptors go as a whole, with the epoch noted, under the process's lock.
type vault struct {
	mu     sync.Mutex
	sock   int    // -1: nobody; guarded by mu
	epoch  uint32 // guarded by mu
	behind bool   // catchUp runs; guarded by mu
	urgent int    // eventfd that ends the holder's nap
	queued int    // messages since the nap was last ended; guarded by mu
	// refill hands over everything by put with whole set; again repeats one
	// until it is taken. Set once before the workers start.
	refill func(again func(put func() bool) bool) bool
	// onLost is called, on a goroutine of its own, when the holder hung up; or
	// nil. Set as refill is.
	onLost func()
}

// maxQueued is how many messages may wait for a holder that naps: the kernel's
// default buffer holds three times as many.
const maxQueued = 64

func newVault(sock int) (*vault, error) {
	urgent, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &vault{sock: sock, epoch: 1, urgent: urgent}, nil
}

// held are the descriptors of one process, or the global ones, by kind.
type held map[byte]int

// fetchTimeout bounds how long a holder that does not answer (it is stopped)
// keeps a new keeper waiting for each message.
const fetchTimeout = 2 * time.Second

// lastFetchTimeout is the same where nobody else has what is asked for: without
// it all processes would be given up.
const lastFetchTimeout = time.Minute

// fetch takes all that a former keeper left. After EAGAIN, for a holder that does
// not answer, the rest is still to come: see fetchRest and discardRest.
func (v *vault) fetch(timeout time.Duration) (map[wire.Ref]held, error) {
	all := map[wire.Ref]held{}
	if v.sock < 0 {
		return all, nil
	}
	ask := wire.VaultMessage{Op: wire.VaultFetch}
	if err := wire.Send(v.sock, ask.Append(nil), nil); err != nil {
		return all, err
	}
	return all, v.fetchRest(all, timeout)
}

func (v *vault) fetchRest(all map[wire.Ref]held, timeout time.Duration) error {
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(v.sock, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	for {
		n, fds, err := wire.Recv(v.sock, buf, 0)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("the holder closed the connection")
		}
		m, err := wire.ParseVault(buf[:n])
		if err != nil || m.Op != wire.VaultItem && m.Op != wire.VaultEnd || len(m.Kinds) != len(fds) {
			return fmt.Errorf("unexpected message %v", m)
		}
		if m.Op == wire.VaultEnd {
			return nil
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

// discardRest takes an answer that came too late off the socket, and drops it: a
// holder that waits for room there would take nothing from us.
func (v *vault) discardRest() {
	sock, err := unix.FcntlInt(uintptr(v.sock), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return
	}
	go func() {
		late := vault{sock: sock}
		defer unix.Close(sock)
		for err := error(unix.EAGAIN); err == unix.EAGAIN; {
			all := map[wire.Ref]held{}
			err = late.fetchRest(all, lastFetchTimeout)
			for _, h := range all {
				h.close()
			}
		}
	}()
}

func (v *vault) put(epoch *uint32, whole bool, ref wire.Ref, kinds []byte, fds []int) bool {
	m := wire.VaultMessage{Op: wire.VaultPut, Ref: ref, Kinds: kinds}
	return v.send(epoch, whole, m.Append(nil), fds)
}

func (v *vault) drop(epoch *uint32, ref wire.Ref, kinds ...byte) {
	m := wire.VaultMessage{Op: wire.VaultDrop, Ref: ref, Kinds: kinds}
	v.send(epoch, false, m.Append(nil), nil)
}

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
		if v.queued++; v.queued >= maxQueued {
			v.hurry()
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

// adopt connects a new holder and hands everything over.
func (v *vault) adopt(sock int) {
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
func (v *vault) startCatchUp() {
	if !v.behind {
		v.behind = true
		go v.catchUp()
	}
}

// renew is for a holder that is connected but does not have everything.
func (v *vault) renew() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.epoch++
	v.startCatchUp()
}

// lost is for a holder that hung up.
func (v *vault) lost() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hangUp()
}

// hangUp: v.mu is held.
func (v *vault) hangUp() {
	if v.sock < 0 {
		return
	}
	unix.Close(v.sock)
	v.sock = -1
	v.epoch++
	if v.onLost != nil {
		go v.onLost()
	}
}

// catchUp hands everything over and lets the holder forget the rest, until a
// whole pass belongs to one epoch or nobody is left to hold it. It waits for
// room in the socket without holding a lock.
func (v *vault) catchUp() {
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

func (v *vault) connected() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sock >= 0
}

// complete: the holder is connected and has everything.
func (v *vault) complete() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sock >= 0 && !v.behind
}

// merge adds to all what is in more alone, and closes the rest of more.
func merge(all, more map[wire.Ref]held) {
	for ref, h := range more {
		mine := all[ref]
		if mine == nil {
			all[ref] = h
			continue
		}
		for kind, fd := range h {
			if _, ok := mine[kind]; ok {
				unix.Close(fd)
			} else {
				mine[kind] = fd
			}
		}
	}
}

// covered reports whether a vault's holdings are all that a slot with these
// flags may need: what the process's facts say is still open must be there.
// forked: its program was forked, or may have been.
func covered(flags uint32, forked bool, h held) bool {
	if flags&board.FlagUsed == 0 || flags&board.FlagFinal != 0 {
		return true
	}
	has := func(kinds ...byte) bool {
		for _, k := range kinds {
			if _, ok := h[k]; !ok {
				return false
			}
		}
		return true
	}
	if flags&board.FlagStarted == 0 {
		// Its pipes were deposited, all in one message, before the fork; what
		// else there is, the start that is completed asks for.
		return !forked || has(wire.FDStdout) || has(wire.FDPTY)
	}
	if flags&board.FlagExited == 0 && !has(wire.FDPid) {
		return false
	}
	if flags&board.FlagStdinMem != 0 && !has(wire.FDStdinMem) {
		return false
	}
	if has(wire.FDPTY) {
		if flags&board.FlagStdinMem != 0 && !has(wire.FDFeedR, wire.FDFeedW) {
			return false
		}
		return has(wire.FDStageR, wire.FDStageW)
	}
	ended := func(s process.Stream) bool { return flags&board.FlagEOF(s) != 0 }
	return (ended(process.Stdout) || has(wire.FDStdout) || ended(process.PTY)) &&
		(ended(process.Stderr) || has(wire.FDStderr) || ended(process.PTY)) &&
		(flags&board.FlagStdinOpen == 0 || has(wire.FDStdin))
}
