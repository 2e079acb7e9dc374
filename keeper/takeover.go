//go:build linux

package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/rundir"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// takeOver starts from what a former keeper left in the vault, or afresh. Crash
// and upgrade of a keeper are this one path.
func (k *Keeper) takeOver(held map[wire.Ref]held) error {
	global := held[wire.Ref{Slot: wire.VaultGlobal}]
	delete(held, wire.Ref{Slot: wire.VaultGlobal})
	if err := k.openGlobals(global); err != nil {
		return err
	}
	k.vault.refill = k.handOver
	k.vault.put(&k.vaulted, true, wire.Ref{Slot: wire.VaultGlobal}, globalKinds, k.globalFDs())
	k.fresh = k.board.Used()
	for slot := k.fresh; slot > 0; slot-- {
		s := k.board.Slot(slot - 1)
		ref := wire.Ref{Slot: slot - 1, Gen: s.Gen()}
		h := held[ref]
		delete(held, ref)
		if s.Flags()&board.FlagUsed == 0 || !k.readopt(ref, s, h) {
			h.close()
			k.free = append(k.free, slot-1)
		}
	}
	for _, h := range held { // of a slot that has another owner by now
		h.close()
	}
	// The server sleeps on news of the former keeper: let it look at all.
	one := [8]byte{1}
	unix.Write(k.wakeFD, one[:])
	return nil
}

var globalKinds = []byte{wire.FDBoard, wire.FDWake, wire.FDListen, wire.FDUrgent}

func (k *Keeper) globalFDs() []int { return []int{k.board.FD(), k.wakeFD, k.listen, k.vault.urgent} }

func (h held) close() {
	for _, fd := range h {
		unix.Close(fd)
	}
}

func (k *Keeper) openGlobals(h held) (err error) {
	if fd, ok := h[wire.FDBoard]; ok {
		if k.board, err = board.Open(fd); err != nil {
			return fmt.Errorf("the board that the former keeper left: %w", err)
		}
	} else if k.board, err = board.Create(); err != nil {
		return err
	}
	if fd, ok := h[wire.FDWake]; ok {
		k.wakeFD = fd
	} else if k.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if fd, ok := h[wire.FDUrgent]; ok {
		k.vault.urgent = fd
	} else if k.vault.urgent, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if fd, ok := h[wire.FDListen]; ok {
		k.listen = fd
		return nil
	}
	os.Remove(k.run.Path(rundir.Orphans))
	k.listen, err = k.run.Listen(rundir.KeeperSocket, unix.SOCK_STREAM)
	return err
}

// handOver deposits everything with a new anchor. again repeats one deposit
// until the anchor takes it.
func (k *Keeper) handOver(again func(put func() bool) bool) bool {
	ok := again(func() bool {
		return k.vault.put(&k.vaulted, true, wire.Ref{Slot: wire.VaultGlobal}, globalKinds, k.globalFDs())
	})
	for i := 0; i < len(k.procs) && ok; i++ {
		p := k.procs[i].Load()
		if p == nil {
			continue
		}
		ok = again(func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return !p.started || p.final || k.deposit(p)
		})
	}
	return ok
}

// readopt takes one process over. False: its slot is free.
func (k *Keeper) readopt(ref wire.Ref, s board.Slot, h held) bool {
	id, flags := s.ID(), s.Flags()
	p := newProc(ref, id, s)
	p.dir = filepath.Join(k.spool, string(id))
	if flags&board.FlagStarted == 0 {
		k.undoStart(p)
		return false
	}
	k.ids[id] = p
	k.procs[ref.Slot].Store(p)
	p.started, p.pid = true, s.PID()
	p.group = k.groups.root != "" && dirExists(k.groups.dir(ref.Slot))
	if flags&board.FlagFinal != 0 {
		p.exited, p.gone, p.final = true, true, true
		h.close()
		return true
	}
	rec, err := spool.Recover(p.dir)
	if err != nil {
		// What the board says is what readers were told. The spec is lost:
		// limits and timeout fall back to their defaults.
		k.logf("process %s: its spool cannot be repaired, going on where the board says: %v", id, err)
		rec = &spool.Recovered{IndexEnd: s.IndexEnd()}
		for st := process.Stdout; st <= process.PTY; st++ {
			rec.End[st] = s.End(st)
		}
		if _, ok := h[wire.FDPTY]; ok {
			rec.Journal.Spec.PTY = &process.Size{}
		}
	}
	for st := process.Stdout; st <= process.PTY; st++ {
		// A base never falls: the trim record may not have been written.
		rec.Base[st] = max(rec.Base[st], min(s.Base(st), rec.End[st]))
	}
	p.setSpec(&rec.Journal.Spec)
	p.indexEnd = rec.IndexEnd
	s.SetIndexEnd(rec.IndexEnd)
	k.adoptFDs(p, h, rec)
	p.exited = flags&board.FlagExited != 0
	if j := &rec.Journal; !p.exited && j.Exit != nil {
		s.SetExit(j.Exit) // died between journal and board
		p.exited = true
	}
	k.vault.put(&p.vaulted, true, ref, nil, nil) // the anchor holds all: note the epoch
	k.rewatch(p, rec)
	return true
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
	in.open = p.slot.Flags()&board.FlagStdinOpen != 0 && (in.fd >= 0 || p.pty && !p.out[0].eof)
	in.mem, in.feedR, in.feedW = take(wire.FDStdinMem), take(wire.FDFeedR), take(wire.FDFeedW)
	if in.mem >= 0 {
		// The former keeper may have died while it fed. A server that feeds
		// at this moment goes on, and one that died with its keeper does not.
		who := p.slot.Feeder()
		if _, _, alive := procStat(who); !alive {
			p.slot.ClearFeeder(who)
			p.feeder().Resync()
		}
	}
	if !in.open {
		p.slot.Clear(board.FlagStdinOpen)
	}
	p.pidfd = take(wire.FDPid)
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
		// The start was announced but the vault never got the pidfd: the
		// anchor died in that moment too.
		if fd, err := unix.PidfdOpen(p.pid, 0); err == nil {
			p.pidfd = fd
			k.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, p, onPid)
		} else {
			go k.adoptExit(p)
		}
	}
	if t := rec.Journal.Spec.Timeout; t > 0 {
		at := rec.Journal.StartedTime.Add(t)
		k.setTimeout(p, at, rec.Journal.Spec.TimeoutScope)
	}
	go func() { // once the workers run
		p.mu.Lock()
		defer p.mu.Unlock()
		k.feed(p)
		k.announce(p)
		if p.exited {
			k.checkTree(p)
			k.finish(p)
		}
	}()
}

// undoStart cleans up after a start that was never announced: the caller was
// not told that it worked and will repeat it.
func (k *Keeper) undoStart(p *proc) {
	if k.groups.root != "" {
		k.groups.kill(p.ref.Slot)
		if fd, err := k.groups.openEvents(p.ref.Slot); err == nil {
			for end := time.Now().Add(time.Second); populated(fd) && time.Now().Before(end); {
				unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, 20)
			}
			unix.Close(fd)
		}
	}
	if j, err := spool.ReadJournal(p.dir); err != nil || j.Exit == nil {
		os.RemoveAll(p.dir)
	}
	p.slot.Release()
}

func dirExists(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
