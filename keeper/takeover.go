//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/orphan"
	"github.com/tend-run/tend/keeper/rundir"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// takeOver starts from what a former keeper left in the vaults, or afresh: the
// way after a crash.
func (k *Keeper) takeOver() error {
	held, err := k.vaults[inAnchor].fetch(fetchTimeout)
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
			merge(held, more)
		} else if err == unix.EAGAIN { // nobody but the anchor, which stands still
			if err = k.vaults[inAnchor].fetchRest(held, lastFetchTimeout); err != nil {
				k.logf("vault of the anchor is still not readable: %v", err)
			}
			complete = k.complete(held)
		}
	}
	if err == unix.EAGAIN {
		k.vaults[inAnchor].discardRest()
	}
	failpoint.Hit(failpoint.TakeoverFetched)
	globals := held[global]
	delete(held, global)
	if err := k.openGlobals(globals); err != nil {
		return err
	}
	for i, v := range k.vaults {
		v.refill = func(again func(put func() bool) bool) bool { return k.handOver(i, again) }
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
			h.close()
			k.free = append(k.free, slot-1)
			continue
		}
		k.readopt(ref, s, h)
		failpoint.Hit(failpoint.TakeoverAdopted)
	}
	for ref, h := range held { // of a slot that has another owner by now
		h.close()
		e := epochs{1, 1}
		k.vaults.drop(&e, ref)
	}
	if !complete {
		k.vaults[inAnchor].renew()
	}
	failpoint.Hit(failpoint.TakeoverDone)
	// The server sleeps on news of the former keeper: let it look at all.
	one := [8]byte{1}
	unix.Write(k.wakeFD, one[:])
	return nil
}

// complete reports whether the anchor's holdings are everything.
func (k *Keeper) complete(all map[wire.Ref]held) bool {
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
		if !covered(s.Flags(), s.PID() != 0, all[wire.Ref{Slot: i, Gen: s.Gen()}]) {
			return false
		}
	}
	return true
}

// fetchMirror asks the launcher for what it holds. The connection is not kept:
// findMirror makes another, on which everything is deposited anew.
func (k *Keeper) fetchMirror() (map[wire.Ref]held, error) {
	sock, err := k.run.Dial(rundir.MirrorSocket, unix.SOCK_SEQPACKET)
	if errors.Is(err, rundir.ErrNobody) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(sock)
	v := vault{sock: sock}
	return v.fetch(lastFetchTimeout)
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
			k.vaults[inMirror].adopt(sock)
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
	return v.put(&k.vaulted[i], true, wire.Ref{Slot: wire.VaultGlobal}, globalKinds, []int{k.board.FD(), k.wakeFD, k.listen, v.urgent})
}

func (h held) close() {
	for _, fd := range h {
		unix.Close(fd)
	}
}

func (k *Keeper) openGlobals(h held) (err error) {
	if fd, ok := h[wire.FDUrgent]; ok {
		unix.Close(fd) // each keeper has its own
	}
	if fd, ok := h[wire.FDBoard]; ok {
		if k.board, err = board.Open(fd); err != nil {
			return fmt.Errorf("the board that the former keeper left: %w", err)
		}
	} else {
		// Whatever runs in our groups belongs to no board any more: it is
		// reported as lost, its pipes are broken, and nobody could end it.
		k.groups.endFormer(k.logf)
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
			return k.vaults[i].put(&p.vaulted[i], true, p.ref, kinds, fds)
		})
	}
	return ok
}

// readopt takes one process over.
func (k *Keeper) readopt(ref wire.Ref, s board.Slot, h held) {
	p := newProc(ref, s.ID(), s)
	p.dir = filepath.Join(k.spool, string(p.id))
	k.name(p)
	k.procs[ref.Slot].Store(p)
	if s.Flags()&board.FlagStarted != 0 {
		k.goOn(p, h)
		return
	}
	// What was forked may take a moment to be found. Nobody touches the
	// process, nor its descriptors in the vaults, before this is settled.
	p.mu.Lock()
	k.unsettled = append(k.unsettled, func() {
		if k.adoptStart(p, h) {
			failpoint.Hit(failpoint.AdoptCompleted)
			k.goOn(p, h)
			p.mu.Unlock()
			k.announce(p)
			return
		}
		k.undoStart(p, h)
		h.close()
		p.mu.Unlock()
		k.release(p)
	})
}

// goOn continues a process that was started.
func (k *Keeper) goOn(p *proc, h held) {
	s, id, flags := p.slot, p.id, p.slot.Flags()
	p.started, p.pid = true, s.PID()
	p.group = k.inGroup(p)
	if flags&board.FlagFinal != 0 {
		p.exited, p.gone, p.final = true, true, true
		h.close()
		return
	}
	announced := &spool.Progress{IndexEnd: s.IndexEnd()}
	for st := process.Stdout; st <= process.PTY; st++ {
		announced.Base[st], announced.End[st] = s.Base(st), s.End(st)
	}
	rec, err := spool.RecoverFrom(p.dir, announced)
	if err != nil {
		// What the board says is what readers were told. The spec is lost:
		// limits and timeout fall back to their defaults.
		k.logf("process %s: its spool cannot be repaired, going on where the board says: %v", id, err)
		rec = &spool.Recovered{End: announced.End, IndexEnd: announced.IndexEnd}
		if _, ok := h[wire.FDPTY]; ok {
			rec.Journal.Spec.PTY = &process.Size{}
		}
	}
	for st := process.Stdout; st <= process.PTY; st++ {
		// A base never falls: the trim record may not have been written.
		rec.Base[st] = max(rec.Base[st], min(s.Base(st), rec.End[st]))
	}
	p.setSpec(&rec.Journal.Spec)
	k.adoptSync(p)
	p.indexEnd = rec.IndexEnd
	s.SetIndexEnd(rec.IndexEnd)
	k.adoptFDs(p, h, rec)
	p.exited = flags&board.FlagExited != 0
	if cause, sig, ok := s.NotedCause(); ok && !p.exited {
		p.cause, p.causeSig = cause, sig
	}
	switch j := &rec.Journal; {
	case !p.exited && j.Exit != nil: // died between journal and board
		p.exited = true
		if p.sync == process.SyncExit {
			p.untold = j.Exit
		} else {
			s.SetExit(j.Exit)
		}
	case p.exited && j.Exit == nil: // died while it owed the journal
		e := s.Exit()
		k.record(p, spool.AppendExited(nil, e.Time, e))
	}
	p.vaulted[inAnchor] = 1 // it holds all, or everything is deposited anew
	k.rewatch(p, rec)
}

// adoptFDs gives the descriptors their places and the streams their offsets.
func (k *Keeper) adoptFDs(p *proc, h held, rec *spool.Recovered) {
	take := func(kind byte) int {
		if fd, ok := h[kind]; ok {
			delete(h, kind)
			return fd
		}
		return -1
	}
	if p.pty {
		p.out[0].fd, p.out[0].stageR, p.out[0].stageW = take(wire.FDPTY), take(wire.FDStageR), take(wire.FDStageW)
	} else {
		p.out[0].fd, p.out[1].fd, p.stdin.fd = take(wire.FDStdout), take(wire.FDStderr), take(wire.FDStdin)
	}
	for i := range p.out {
		s := &p.out[i]
		s.base, s.end, s.unpunched = rec.Base[s.stream], rec.End[s.stream], rec.Base[s.stream]
		s.eof = s.fd < 0 || p.slot.Flags()&board.FlagEOF(s.stream) != 0
		if s.fd < 0 && p.slot.Flags()&board.FlagEOF(s.stream) == 0 && !(i == 1 && p.pty) {
			k.logf("process %s: no vault holds its %s: what it writes from now on is lost", p.id, s.stream)
		}
		if s.eof && i == 1 && p.pty {
			continue
		}
		p.slot.SetBase(s.stream, s.base)
		p.slot.SetEnd(s.stream, s.end)
		if s.eof {
			closeFD(&s.fd)
			p.slot.Set(board.FlagEOF(s.stream))
		}
	}
	in := &p.stdin
	if !p.pty && in.fd < 0 && p.slot.Flags()&board.FlagStdinOpen != 0 {
		k.logf("process %s: its stdin is in no vault, so it ends", p.id)
	}
	in.open = p.slot.Flags()&board.FlagStdinOpen != 0 && (in.fd >= 0 || p.pty && !p.out[0].eof)
	in.mem, in.feedR, in.feedW = take(wire.FDStdinMem), take(wire.FDFeedR), take(wire.FDFeedW)
	if in.mem >= 0 {
		// The former keeper may have died while it fed. A server that feeds
		// at this moment goes on, and one that died with its keeper does not.
		p.recoverFeeder()
	}
	if !in.open {
		p.slot.Clear(board.FlagStdinOpen)
		// What a vault still had, because it missed the drop, would hold the
		// input open for ever.
		if in.fd >= 0 || in.mem >= 0 {
			closeFD(&in.fd)
			closeFD(&in.mem)
			closeFD(&in.feedR)
			closeFD(&in.feedW)
			p.vaulted = epochs{1, 1}
			k.vaults.drop(&p.vaulted, p.ref, wire.FDStdin, wire.FDStdinMem, wire.FDFeedR, wire.FDFeedW)
		}
	}
	p.pidfd = take(wire.FDPid)
	if p.gate = take(wire.FDGate); p.gate >= 0 { // its child may wait, or have gone on
		p.vaulted = epochs{1, 1}
		k.openGate(p)
	}
	h.close() // kinds this version does not know
}

// rewatch starts watching again, and goes on with what was under way.
func (k *Keeper) rewatch(p *proc, rec *spool.Recovered) {
	for i := range p.out {
		if s := &p.out[i]; !s.eof {
			k.watch(unix.EPOLL_CTL_ADD, s.fd, unix.EPOLLIN, p, i)
		}
	}
	if p.stdin.fd >= 0 {
		k.watch(unix.EPOLL_CTL_ADD, p.stdin.fd, 0, p, onStdin)
	}
	switch {
	case p.exited:
		closeFD(&p.pidfd)
	case p.pidfd >= 0:
		k.watch(unix.EPOLL_CTL_ADD, p.pidfd, unix.EPOLLIN, p, onPid)
	default:
		// No vault ever got the pidfd. If somebody has reaped the process, its
		// pid may be another's by now.
		if orphan.Find(k.run.Path(rundir.Orphans), p.pid, p.slot.Reserved()) != nil {
			go k.adoptExit(p)
		} else if fd, err := unix.PidfdOpen(p.pid, 0); err == nil {
			p.pidfd = fd
			k.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, p, onPid)
		} else {
			go k.adoptExit(p)
		}
	}
	if at, scope, ok := p.slot.Deadline(); ok {
		k.setTimeout(p, at, scope)
	} else if t := rec.Journal.Spec.Timeout; t > 0 { // its start was just completed
		began := p.slot.Reserved()
		if began == 0 {
			began = bootTime()
		}
		k.setTimeout(p, began+t.Nanoseconds(), rec.Journal.Spec.TimeoutScope)
	}
	go func() { // once the workers run
		p.mu.Lock()
		defer p.mu.Unlock()
		k.feed(p)
		k.resumeSync(p)
		if s := &p.out[0]; p.pty && !s.eof {
			k.pump(p, s) // what lies in the staging pipe makes the terminal no more readable
		}
		k.announce(p)
		if p.exited {
			k.checkTree(p)
			k.finish(p)
		}
	}()
}

// inGroup reports whether a process that another keeper started has a cgroup.
func (k *Keeper) inGroup(p *proc) bool {
	return k.groups.root != "" && p.slot.Flags()&board.FlagNoGroup == 0 && dirExists(k.groups.dir(p.ref.Slot))
}

func dirExists(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
