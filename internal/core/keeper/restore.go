//go:build linux

package keeper

import (
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/reaplog"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// restore makes the proc of a process that a former keeper left. was is nil after
// that keeper's death.
func (k *Keeper) restore(ref wire.Ref, s board.Slot, h fdstore.FDs, was *handoverProc) {
	p := newProc(ref, s.ID(), s)
	p.dir = filepath.Join(k.spool, string(p.id))
	p.container.Store(k.containers.slot(ref.Slot))
	k.name(p)
	k.procs[ref.Slot].Store(p)
	if s.Flags()&board.FlagStarted != 0 {
		k.restoreStarted(p, h, was)
		return
	}
	// It may take a moment to find a forked child. Until then nothing touches the process
	// or its descriptors in the vaults.
	p.mu.Lock()
	k.unsettled = append(k.unsettled, func() {
		if k.completeStart(p, h) {
			failpoint.Hit(failpoint.HalfStartCompleted)
			k.restoreStarted(p, h, nil)
			p.mu.Unlock()
			k.announce(p)
			return
		}
		k.undoStart(p, h)
		h.Close()
		p.mu.Unlock()
		k.release(p)
	})
}

// restoreStarted continues a process that was started.
func (k *Keeper) restoreStarted(p *proc, h fdstore.FDs, was *handoverProc) {
	s, flags := p.slot, p.slot.Flags()
	p.started, p.pid, p.began = true, s.PID(), s.Reserved()
	p.exited, p.gone, p.final = flags&board.FlagExited != 0, flags&board.FlagTreeGone != 0, flags&board.FlagFinal != 0
	p.group = p.slot.Flags()&board.FlagNoGroup == 0 && (was != nil || k.groups.Exists(p.ref.Slot))
	p.vaulted = fdstore.Epochs{1, 1} // each vault has all of it, or gets everything again
	if p.final {
		h.Close()
		return
	}
	rec := k.readSpool(p, h, was)
	p.setSpec(&rec.Journal.Spec)
	p.restoreSync()
	p.indexEnd = rec.IndexEnd
	s.SetIndexEnd(rec.IndexEnd)
	k.restoreStreams(p, h, rec)
	if cause, sig, ok := s.NotedCause(); ok && !p.exited {
		p.cause, p.causeSig = cause, sig
	}
	for i := range p.out {
		s := &p.out[i]
		s.full = !s.eof && flags&board.FlagNoSpace != 0 // readers hear of the exit once it is not
		s.waiting = s.full || was != nil && was.Streams[i]&streamWaits != 0
	}
	if was == nil {
		if rec.Journal.Spec.ID != "" { // it could be read
			k.reconcile(p, rec)
		}
		k.rewatch(p)
	} else {
		if p.deferred = was.Deferred; len(p.deferred) > 0 {
			time.AfterFunc(retryAfter, func() { k.writeDeferred(p) })
		}
	}
	k.carryOn(p, &rec.Journal.Spec)
}

// readSpool determines the content of the spool. After a handover the board has it.
// After a death there may be more in the spool, and torn files are repaired.
func (k *Keeper) readSpool(p *proc, h fdstore.FDs, was *handoverProc) *spool.Recovered {
	s := p.slot
	announced := &spool.Progress{IndexEnd: s.IndexEnd()}
	for st := process.Stdout; st <= process.PTY; st++ {
		announced.Base[st], announced.End[st] = s.Base(st), s.End(st)
	}
	rec := &spool.Recovered{Base: announced.Base, End: announced.End, IndexEnd: announced.IndexEnd}
	spec := &rec.Journal.Spec
	if _, ok := h[wire.FDPTY]; ok || s.Flags()&board.FlagEOF(process.PTY) != 0 {
		spec.PTY = &process.Size{}
	}
	if was != nil {
		spec.Retention.Limit, spec.Retention.Policy = was.Limit, process.RetentionPolicy(was.Policy)
		return rec
	}
	found, err := spool.RecoverFrom(p.dir, announced)
	if err != nil {
		// The board has what was announced to readers. The spec is lost: limits and timeout
		// fall back to their defaults.
		k.logf("process %s: its spool cannot be repaired, going on where the board says: %v", p.id, err)
		return rec
	}
	for st := process.Stdout; st <= process.PTY; st++ {
		// A base never falls: the trim record may not have been written.
		found.Base[st] = max(found.Base[st], min(s.Base(st), found.End[st]))
	}
	return found
}

// reconcile has journal and board say the same: the former keeper died between the
// two, or the journal had no room.
func (k *Keeper) reconcile(p *proc, rec *spool.Recovered) {
	j, flags, now := &rec.Journal, p.slot.Flags(), time.Now()
	var missing []byte
	if j.Started == nil {
		if p.inner == 0 && p.container.Load() != nil { // what the board says of it may be half of an exit
			p.inner = uint32(procfs.InnerPID(p.pid))
		}
		missing = p.appendStart(missing, p.slot.Started(), p.pid)
	}
	for i := range p.out {
		if st := p.out[i].stream; flags&board.FlagEOF(st) != 0 && !j.EOF[st] {
			missing = spool.AppendEOF(missing, now, st, p.out[i].end)
		}
	}
	switch {
	case p.exited && j.Exit == nil:
		e := p.slot.Exit()
		missing = spool.AppendExited(missing, e.Time, e)
	case !p.exited && j.Exit != nil:
		p.exited = true
		if p.sync == process.SyncExit {
			p.pendingExit = j.Exit
		} else {
			p.slot.SetExit(j.Exit)
		}
	}
	if p.gone && !j.TreeGone {
		missing = spool.AppendTreeGone(missing, now)
	}
	if len(missing) > 0 {
		k.record(p, missing)
	}
}

// restoreStreams gives the descriptors their places and the streams their offsets.
func (k *Keeper) restoreStreams(p *proc, h fdstore.FDs, rec *spool.Recovered) {
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
		s.base, s.end = rec.Base[s.stream], rec.End[s.stream] // unpunched is 0: what is freed may not be punched
		s.eof = s.fd < 0 || p.slot.Flags()&board.FlagEOF(s.stream) != 0
		// The journal has the end before the board if the exit waits for the disk.
		if ended := p.slot.Flags()&board.FlagEOF(s.stream) != 0 || rec.Journal.EOF[s.stream]; s.fd < 0 && !ended && !(i == 1 && p.pty) {
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
		// at this moment continues, and one that died with its keeper does not.
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
			k.vaults.Drop(&p.vaulted, p.ref, wire.FDStdin, wire.FDStdinMem, wire.FDFeedR, wire.FDFeedW)
		}
	}
	p.pidfd = take(wire.FDPid)
	h.Close() // kinds this version does not know
}

// rewatch adds the descriptors to a new epoll instance. After an upgrade the old
// instance was handed over; in it everything is armed except waiting streams, and a
// pidfd whose exit a goroutine handles.
func (k *Keeper) rewatch(p *proc) {
	for i := range p.out {
		if s := &p.out[i]; !s.eof {
			k.watch(unix.EPOLL_CTL_ADD, s.fd, unix.EPOLLIN, p, i)
		}
	}
	if p.stdin.fd >= 0 {
		k.watch(unix.EPOLL_CTL_ADD, p.stdin.fd, 0, p, onStdin)
	}
	if p.pidfd < 0 && !p.exited && reaplog.Find(k.run.Path(rundir.Orphans), p.pid, p.slot.Reserved()) == nil {
		// No vault ever got the pidfd. The process has not been reaped, so its pid was not
		// reused.
		if fd, err := unix.PidfdOpen(p.pid, 0); err == nil {
			p.pidfd = fd
		}
	}
	if p.pidfd >= 0 && !p.exited {
		k.watch(unix.EPOLL_CTL_ADD, p.pidfd, 0, p, onPid)
	}
}

// carryOn continues interrupted work.
func (k *Keeper) carryOn(p *proc, spec *process.Spec) {
	switch {
	case p.exited:
		closeFD(&p.pidfd)
	case p.pidfd >= 0:
		k.watch(unix.EPOLL_CTL_MOD, p.pidfd, unix.EPOLLIN, p, onPid)
	default:
		go k.awaitStatus(p)
	}
	if at, scope, ok := p.slot.Deadline(); ok {
		k.setTimeout(p, at, scope)
	} else if t := spec.Timeout; t > 0 { // its start was just completed
		began := p.slot.Reserved()
		if began == 0 {
			began = procfs.BootTime()
		}
		k.setTimeout(p, began+t.Nanoseconds(), spec.TimeoutScope)
	}
	input := p.stdin.mem >= 0 || p.slot.Wishes()&board.StdinEOF != 0
	waits := p.out[0].waiting || p.out[1].waiting || p.slot.Flags()&board.FlagNoSpace != 0
	if !input && !waits && !p.pty && !p.dirty && !p.exited {
		return
	}
	go func() { // once the workers run
		if waits {
			k.resume(p)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		k.feed(p)
		k.resumeSync(p)
		if s := &p.out[0]; p.pty && !s.eof {
			k.recallSize(p)
			k.pump(p, s) // what lies in the staging pipe makes the terminal no more readable
		}
		k.announce(p)
		if p.exited {
			k.checkTree(p)
			k.finish(p)
		}
	}()
}
