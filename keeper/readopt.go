//go:build linux

package keeper

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/procfs"
	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/orphan"
	"github.com/tend-run/tend/keeper/rundir"
	"github.com/tend-run/tend/keeper/vault"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// readopt takes one process over.
func (k *Keeper) readopt(ref wire.Ref, s board.Slot, h vault.FDs) {
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
		h.Close()
		p.mu.Unlock()
		k.release(p)
	})
}

// goOn continues a process that was started.
func (k *Keeper) goOn(p *proc, h vault.FDs) {
	s, id, flags := p.slot, p.id, p.slot.Flags()
	p.started, p.pid, p.began = true, s.PID(), s.Reserved()
	p.group = k.inGroup(p)
	if flags&board.FlagFinal != 0 {
		p.exited, p.gone, p.final = true, true, true
		h.Close()
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
	p.vaulted[vault.Anchor] = 1 // it holds all, or everything is deposited anew
	k.rewatch(p, rec)
}

// adoptFDs gives the descriptors their places and the streams their offsets.
func (k *Keeper) adoptFDs(p *proc, h vault.FDs, rec *spool.Recovered) {
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
			p.vaulted = vault.Epochs{1, 1}
			k.vaults.Drop(&p.vaulted, p.ref, wire.FDStdin, wire.FDStdinMem, wire.FDFeedR, wire.FDFeedW)
		}
	}
	p.pidfd = take(wire.FDPid)
	if p.gate = take(wire.FDGate); p.gate >= 0 { // its child may wait, or have gone on
		p.vaulted = vault.Epochs{1, 1}
		k.openGate(p)
	}
	h.Close() // kinds this version does not know
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
			began = procfs.BootTime()
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
	return p.slot.Flags()&board.FlagNoGroup == 0 && k.groups.Exists(p.ref.Slot)
}
