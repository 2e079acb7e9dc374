//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/orphan"
	"github.com/tend-run/tend/keeper/rundir"
	"github.com/tend-run/tend/keeper/vault"
	"github.com/tend-run/tend/keeper/wire"
)

// takeOver starts from what a former keeper left in the vaults, or afresh: the
// way after a crash.
func (k *Keeper) takeOver() error {
	anchor := k.vaults[vault.Anchor].Socket()
	held, err := vault.Fetch(anchor, vault.FetchTimeout)
	if err != nil {
		k.logf("vault of the anchor is not readable: %v", err)
	}
	global := wire.Ref{Slot: wire.VaultGlobal}
	complete := k.complete(held)
	if !complete {
		// The anchor died too, and was started anew: the launcher has the rest.
		if more, merr := k.fetchMirror(); merr != nil {
			k.logf("the launcher's mirror is not readable: %v", merr)
		} else if more != nil {
			vault.Merge(held, more)
		} else if err == unix.EAGAIN { // nobody but the anchor, which stands still
			if err = vault.FetchRest(anchor, held, vault.LastFetchTimeout); err != nil {
				k.logf("vault of the anchor is still not readable: %v", err)
			}
			complete = k.complete(held)
		}
	}
	if err == unix.EAGAIN {
		vault.DiscardRest(anchor)
	}
	failpoint.Hit(failpoint.TakeoverFetched)
	globals := held[global]
	delete(held, global)
	_, takesOver := globals[wire.FDBoard]
	k.identify(takesOver)
	k.groups.RemoveEmpty()
	if err := k.openGlobals(globals, held); err != nil {
		return err
	}
	for i, v := range k.vaults {
		v.Refill = func(again func(put func() bool) bool) bool { return k.handOver(i, again) }
		k.depositGlobals(i)
	}
	failpoint.Hit(failpoint.TakeoverGlobals)
	k.fresh = k.board.Used()
	for slot := k.fresh; slot > 0; slot-- {
		s := k.board.Slot(slot - 1)
		ref := wire.Ref{Slot: slot - 1, Gen: s.Gen()}
		h := held[ref]
		delete(held, ref)
		if s.Flags()&board.FlagUsed == 0 {
			h.Close()
			k.free = append(k.free, slot-1)
			continue
		}
		k.readopt(ref, s, h)
		failpoint.Hit(failpoint.TakeoverAdopted)
	}
	for ref, h := range held { // of a slot that has another owner by now
		h.Close()
		e := vault.Epochs{1, 1}
		k.vaults.Drop(&e, ref)
	}
	if !complete {
		k.vaults[vault.Anchor].Resend()
	}
	failpoint.Hit(failpoint.TakeoverDone)
	// The server sleeps on news of the former keeper: let it look at all.
	one := [8]byte{1}
	unix.Write(k.wakeFD, one[:])
	return nil
}

// complete reports whether the anchor's holdings are everything.
func (k *Keeper) complete(all map[wire.Ref]vault.FDs) bool {
	fd, ok := all[wire.Ref{Slot: wire.VaultGlobal}][wire.FDBoard]
	if !ok {
		return false
	}
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return false
	}
	b, err := board.Open(fd)
	if err != nil {
		unix.Close(fd)
		return false
	}
	defer b.Close()
	for i := range b.Used() {
		s := b.Slot(i)
		if !vault.Covers(s.Flags(), s.PID() != 0, all[wire.Ref{Slot: i, Gen: s.Gen()}]) {
			return false
		}
	}
	return true
}

// fetchMirror asks the launcher for what it holds. The connection is not kept:
// findMirror makes another, on which everything is deposited anew.
func (k *Keeper) fetchMirror() (map[wire.Ref]vault.FDs, error) {
	sock, err := k.run.Dial(rundir.MirrorSocket, unix.SOCK_SEQPACKET)
	if errors.Is(err, rundir.ErrNobody) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(sock)
	return vault.Fetch(sock, vault.LastFetchTimeout)
}

// How often a keeper without a launcher looks for one: often at first, since a
// launcher starts a moment before or after.
const (
	mirrorSoon  = 100 * time.Millisecond
	mirrorLater = time.Second
)

// findMirror connects to the launcher as soon as there is one, and deposits
// everything there.
func (k *Keeper) findMirror() { k.tryMirror(0) }

func (k *Keeper) tryMirror(tries int) {
	sock, err := k.run.Dial(rundir.MirrorSocket, unix.SOCK_SEQPACKET)
	if err == nil {
		ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: onMirror}
		if err = unix.EpollCtl(k.ep, unix.EPOLL_CTL_ADD, sock, &ev); err == nil {
			k.vaults[vault.Mirror].Connect(sock)
			return
		}
		unix.Close(sock)
	}
	pause := mirrorLater
	if tries < 50 {
		pause = mirrorSoon
	}
	time.AfterFunc(pause, func() { k.tryMirror(tries + 1) })
}

var globalKinds = []byte{wire.FDBoard, wire.FDWake, wire.FDListen, wire.FDUrgent}

// depositGlobals puts what belongs to no process into one vault.
func (k *Keeper) depositGlobals(i int) bool {
	v := k.vaults[i]
	return v.Put(&k.vaulted[i], true, wire.Ref{Slot: wire.VaultGlobal}, globalKinds, []int{k.board.FD(), k.wakeFD, k.listen, v.Urgent()})
}

// openGlobals opens what belongs to no process; procs is what the vaults hold of
// the others.
func (k *Keeper) openGlobals(h vault.FDs, procs map[wire.Ref]vault.FDs) (err error) {
	if fd, ok := h[wire.FDUrgent]; ok {
		unix.Close(fd) // each keeper has its own
	}
	if fd, ok := h[wire.FDBoard]; ok {
		if err := k.openBoard(fd, procs); err != nil {
			return err
		}
	} else {
		// Whatever runs in our groups belongs to no board any more: it is
		// reported as lost, its pipes are broken, and nobody could end it.
		k.groups.EndFormer(k.logf, nil)
		if k.board, err = board.Create(); err != nil {
			return err
		}
	}
	if fd, ok := h[wire.FDWake]; ok {
		k.wakeFD = fd
	} else if k.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if fd, ok := h[wire.FDListen]; ok {
		k.listen = fd
		return nil
	}
	if err := orphan.Reserve(k.run.Path(rundir.Orphans)); err != nil {
		k.logf("exit statuses that others collect: %v", err)
	}
	k.listen, err = k.run.Listen(rundir.KeeperSocket, unix.SOCK_STREAM)
	return err
}

// handOver deposits everything with a new holder of a vault. again repeats one
// deposit until the holder takes it.
func (k *Keeper) handOver(i int, again func(put func() bool) bool) bool {
	ok := again(func() bool { return k.depositGlobals(i) })
	for slot := 0; slot < len(k.procs) && ok; slot++ {
		p := k.procs[slot].Load()
		if p == nil {
			continue
		}
		failpoint.Hit(failpoint.VaultRefilled)
		ok = again(func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !p.started || p.final {
				return true
			}
			kinds, fds := p.holdings()
			return k.vaults[i].Put(&p.vaulted[i], true, p.ref, kinds, fds)
		})
	}
	return ok
}
