//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/reaplog"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/wire"
)

// inherited is what a keeper starts from: what the vaults hold after the death of
// the one before, or what that one handed over to go on in place.
type inherited struct {
	held     map[wire.Ref]fdstore.FDs   // descriptors, the global ones too
	complete [fdstore.Count]bool        // the vault has all of them
	known    map[wire.Ref]*handoverProc // of processes; empty after a death
}

var global = wire.Ref{Slot: wire.VaultGlobal}

// takeOver starts from what a former keeper left, or afresh: the way after a crash
// and after an upgrade.
func (k *Keeper) takeOver() (err error) {
	// Full pipes wait for the end of this; garbage does not matter so long.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var in *inherited
	if k.cfg.Handover > 0 {
		in, err = k.readHandover(k.cfg.Handover)
	} else {
		in, err = k.fetchAll()
	}
	if err != nil {
		return err
	}
	globals := in.held[global]
	delete(in.held, global)
	_, takesOver := globals[wire.FDBoard]
	k.identify(takesOver)
	k.findContainers()
	if err := k.openGlobals(globals, in.held); err != nil {
		return err
	}
	if !takesOver {
		k.endFormerContainers()
	}
	for i, v := range k.vaults {
		v.Refill = func(again func(put func() bool) bool) bool { return k.depositAll(i, again) }
		k.depositGlobals(i)
	}
	failpoint.Hit(failpoint.TakeoverGlobals)
	k.fresh = k.board.Used()
	k.groups.Distrust(k.fresh)
	for slot := k.fresh; slot > 0; slot-- {
		s := k.board.Slot(slot - 1)
		ref := wire.Ref{Slot: slot - 1, Gen: s.Gen()}
		h := in.held[ref]
		delete(in.held, ref)
		if s.Flags()&board.FlagUsed == 0 {
			h.Close()
			k.free = append(k.free, slot-1)
			continue
		}
		k.restore(ref, s, h, in.known[ref])
		k.board.Mark(slot - 1) // the server is woken below
		failpoint.Hit(failpoint.TakeoverRestored)
	}
	k.groups.Sweep(func(slot, gen uint32) bool {
		p := k.procs[slot%board.Slots].Load()
		return p != nil && p.ref == wire.Ref{Slot: slot, Gen: gen} && p.slot.Flags()&board.FlagFinal == 0
	})
	for ref, h := range in.held { // of a slot that has another owner by now
		h.Close()
		e := fdstore.Epochs{1, 1}
		k.vaults.Drop(&e, ref)
	}
	for i, v := range k.vaults {
		if v.Connected() && !in.complete[i] {
			v.Resend()
		}
	}
	failpoint.Hit(failpoint.TakeoverDone)
	// The server sleeps on news of the former keeper: let it look at all.
	one := [8]byte{1}
	unix.Write(k.wakeFD, one[:])
	return nil
}

// readHandover takes over what the program before left in this process.
func (k *Keeper) readHandover(fd int) (*inherited, error) {
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxHandover))
	if err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	s, err := decodeHandover(b)
	if err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.UpgradeDecoded)
	g := &s.Keeper
	if g.FDs[wire.FDBoard] == 0 {
		return nil, errHandover // without a board all processes would be ended
	}
	in := &inherited{complete: g.Complete, held: map[wire.Ref]fdstore.FDs{global: g.FDs.held()},
		known: make(map[wire.Ref]*handoverProc, len(s.Procs))}
	for i := range s.Procs {
		p := &s.Procs[i]
		ref := wire.Ref{Slot: uint32(p.Slot), Gen: uint32(p.Gen)}
		in.held[ref], in.known[ref] = p.FDs.held(), p
		unix.Close(fdIn(p.Events))
	}
	k.ep, k.lock, k.upgrades, k.began = fdIn(g.Epoll), fdIn(g.Lock), g.Upgrades, g.Began
	if err := k.run.HoldOn("keeper", k.lock); err != nil {
		return nil, err
	}
	if err := k.openVaults(fdIn(g.Sockets[fdstore.Anchor]), fdIn(g.Sockets[fdstore.Mirror])); err != nil {
		return nil, err
	}
	if sock := k.vaults[fdstore.Mirror].Socket(); sock >= 0 {
		k.watchMirror(unix.EPOLL_CTL_MOD, sock)
	}
	return in, nil
}

// fetchAll gets everything from the vaults that a previous keeper left. From here on
// there is no other keeper.
func (k *Keeper) fetchAll() (_ *inherited, err error) {
	if err = k.hold(); err != nil {
		return nil, err
	}
	if k.late() {
		return nil, errors.New("the anchor that started this keeper has ended, and the next one starts another")
	}
	if k.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err := k.openVaults(k.cfg.Vault, -1); err != nil {
		return nil, err
	}
	anchor := k.vaults[fdstore.Anchor].Socket()
	held, err := fdstore.Fetch(anchor, fdstore.FetchTimeout)
	if err != nil {
		k.logf("vault of the anchor is not readable: %v", err)
	}
	complete := k.complete(held)
	if !complete {
		// The anchor died too, and was restarted: the launcher has the rest.
		if more, merr := k.fetchMirror(); merr != nil {
			k.logf("the launcher's mirror is not readable: %v", merr)
		} else if more != nil {
			fdstore.Merge(held, more)
		} else if err == unix.EAGAIN { // nobody but the anchor, which stands still
			if err = fdstore.FetchRest(anchor, held, fdstore.LastFetchTimeout); err != nil {
				k.logf("vault of the anchor is still not readable: %v", err)
			}
			complete = k.complete(held)
		}
	}
	if err == unix.EAGAIN {
		fdstore.DiscardRest(anchor)
	}
	failpoint.Hit(failpoint.TakeoverFetched)
	return &inherited{held: held, complete: [fdstore.Count]bool{fdstore.Anchor: complete}}, nil
}

// openVaults creates the vaults over these sockets; -1: no holder yet.
func (k *Keeper) openVaults(anchor, mirror int) (err error) {
	for i, sock := range []int{anchor, mirror} {
		if k.vaults[i], err = fdstore.New(sock); err != nil {
			return err
		}
	}
	return nil
}

// complete reports whether the anchor's holdings are everything.
func (k *Keeper) complete(all map[wire.Ref]fdstore.FDs) bool {
	fd, ok := all[global][wire.FDBoard]
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
		if !fdstore.Covers(s.Flags(), s.PID() != 0, all[wire.Ref{Slot: i, Gen: s.Gen()}]) {
			return false
		}
	}
	return true
}

// fetchMirror gets the descriptors that the launcher holds. It does not keep the
// connection: findMirror opens another one, on which everything is deposited again.
func (k *Keeper) fetchMirror() (map[wire.Ref]fdstore.FDs, error) {
	sock, err := k.run.Dial(rundir.MirrorSocket, unix.SOCK_SEQPACKET)
	if errors.Is(err, rundir.ErrNobody) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(sock)
	return fdstore.Fetch(sock, fdstore.LastFetchTimeout)
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
		if err = k.watchMirror(unix.EPOLL_CTL_ADD, sock); err == nil {
			k.vaults[fdstore.Mirror].Connect(sock)
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

// watchMirror has the workers notice that the launcher hangs up.
func (k *Keeper) watchMirror(op, sock int) error {
	return unix.EpollCtl(k.ep, op, sock, &unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: onMirror})
}

var globalKinds = []byte{wire.FDBoard, wire.FDWake, wire.FDListen}

// depositGlobals puts what belongs to no process into one vault.
func (k *Keeper) depositGlobals(i int) bool {
	v := k.vaults[i]
	return v.Put(&k.vaulted[i], true, global, append(globalKinds[:3:3], wire.FDUrgent), []int{k.board.FD(), k.wakeFD, k.listen, v.Urgent()})
}

// openGlobals opens the descriptors that belong to no process; procs are those of the
// processes.
func (k *Keeper) openGlobals(h fdstore.FDs, procs map[wire.Ref]fdstore.FDs) (err error) {
	if fd, ok := h[wire.FDUrgent]; ok {
		unix.Close(fd) // each keeper has its own
	}
	if fd, ok := h[wire.FDBoard]; ok {
		if err := k.openBoard(fd, procs); err != nil {
			return err
		}
	} else {
		// Processes in our groups belong to no board any more: they are reported as lost,
		// their pipes are broken, and nobody could end them later.
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
	if err := reaplog.Reserve(k.run.Path(rundir.Orphans)); err != nil {
		k.logf("exit statuses that others collect: %v", err)
	}
	k.listen, err = k.run.Listen(rundir.KeeperSocket, unix.SOCK_STREAM)
	return err
}

// depositAll deposits everything with a new holder of a vault. again repeats one
// deposit until the holder takes it.
func (k *Keeper) depositAll(i int, again func(put func() bool) bool) bool {
	if !again(func() bool { return k.depositGlobals(i) }) {
		return false
	}
	for p := range k.all {
		failpoint.Hit(failpoint.VaultRefilled)
		if !again(func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !p.started || p.final {
				return true
			}
			kinds, fds := p.holdings()
			return k.vaults[i].Put(&p.vaulted[i], true, p.ref, kinds, fds)
		}) {
			return false
		}
	}
	return true
}
