//go:build linux

package keeper

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/procfs"
	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/cgroup"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/vault"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
)

// restore goes on from a snapshot that the program before left in this process.
func (k *Keeper) restore(fd int) error {
	// Full pipes wait for the end of this; garbage does not matter so long.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	f := os.NewFile(uintptr(fd), "snapshot")
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxSnapshot))
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	s, err := decodeSnapshot(b)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.UpgradeDecoded)
	g := &s.Keeper
	k.ep, k.wakeFD, k.listen, k.lock = fdIn(g.EP), fdIn(g.Wake), fdIn(g.Listen), fdIn(g.Lock)
	if k.board, err = board.Open(fdIn(g.Board)); err != nil {
		return err
	}
	for i := range s.Procs {
		p := &s.Procs[i]
		if p.Slot < 0 || p.Slot >= board.Slots {
			return errSnapshot
		}
		if slot := k.board.Slot(uint32(p.Slot)); slot.Gen() != uint32(p.Gen) || slot.Flags()&board.FlagUsed == 0 || !slot.Plausible() {
			return fmt.Errorf("slot %d of the board was overwritten", p.Slot)
		}
	}
	for i := range k.vaults {
		if k.vaults[i], err = vault.New(fdIn(g.Vaults[i])); err != nil {
			return err
		}
		v := k.vaults[i]
		v.Refill = func(again func(put func() bool) bool) bool { return k.handOver(i, again) }
	}
	k.identify(true)
	k.groups.SetMarks(cgroup.Marks{Killed: slotsOf(g.Killed), Limited: slotsOf(g.Limited)})
	for i := range s.Procs {
		k.restoreProc(&s.Procs[i], g)
	}
	k.fresh = k.board.Used()
	for slot := k.fresh; slot > 0; slot-- {
		if k.procs[slot-1].Load() != nil {
			continue
		}
		if s := k.board.Slot(slot - 1); s.Flags()&board.FlagUsed != 0 {
			s.Release() // reserved, and nothing done yet; the server asks again
		}
		k.free = append(k.free, slot-1)
	}
	for i, v := range k.vaults {
		k.depositGlobals(i)
		if v.Connected() && !g.Complete[i] {
			v.Resend()
		}
	}
	if sock := k.vaults[vault.Mirror].Socket(); sock >= 0 {
		ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: onMirror}
		unix.EpollCtl(k.ep, unix.EPOLL_CTL_MOD, sock, &ev)
	}
	one := [8]byte{1}
	unix.Write(k.wakeFD, one[:])
	failpoint.Hit(failpoint.UpgradeRestored)
	k.upgrades, k.last = g.Upgrades, time.Duration(procfs.BootTime()-g.Began)
	k.logf("went on in place with %d processes after %v", len(s.Procs), k.last)
	return nil
}

func (k *Keeper) restoreProc(in *snapshotProc, g *snapshotKeeper) {
	slot := k.board.Slot(uint32(in.Slot))
	p := newProc(wire.Ref{Slot: uint32(in.Slot), Gen: uint32(in.Gen)}, slot.ID(), slot)
	p.dir = k.spool + "/" + string(p.id)
	has := func(bit int64) bool { return in.Flags&bit != 0 }
	p.started, p.exited, p.gone, p.final = has(snapStarted), has(snapExited), has(snapGone), has(snapFinal)
	p.pty, p.group, p.hasTreeTimeout = has(snapPTY), has(snapGroup), has(snapTreeTimeout)
	p.began = slot.Reserved()
	p.pid, p.pidfd, p.treeFD = int(in.PID), fdIn(in.PIDFD), fdIn(in.TreeFD)
	p.indexEnd, p.limit, p.policy = in.IndexEnd, in.Limit, process.RetentionPolicy(in.Policy)
	p.cause, p.causeSig, p.owed = process.Cause(in.Cause), int(in.CauseSig), in.Owed
	p.stdin = stdin{fd: fdIn(in.StdinFD), mem: fdIn(in.Mem), feedR: fdIn(in.FeedR), feedW: fdIn(in.FeedW), open: has(snapStdinOpen)}
	if p.pty {
		p.out[0].stream = process.PTY
	}
	for i := range p.out {
		s, from := &p.out[i], &in.Out[i]
		s.fd, s.stageR, s.stageW = fdIn(from.FD), fdIn(from.StageR), fdIn(from.StageW)
		s.base, s.end, s.unpunched = from.Base, from.End, from.Unpunched
		s.fallback, s.waiting, s.eof = from.Flags&snapFallback != 0, from.Flags&snapWaiting != 0, from.Flags&snapEOF != 0
	}
	for i := range p.vaulted {
		if g.Complete[i] {
			p.vaulted[i] = 1
		}
	}
	k.adoptSync(p)
	k.name(p)
	k.procs[in.Slot].Store(p)
	if !p.final {
		k.resumeSync(p)
		k.rearm(p)
	}
}

// rearm takes up what was under way. All descriptors are registered and armed
// as they were: no event was taken that a worker did not see through. Only an
// exit may have been left to a goroutine that is no more, with a pidfd or, if no
// vault had one, without.
func (k *Keeper) rearm(p *proc) {
	waits := p.out[0].waiting || p.out[1].waiting
	switch {
	case p.exited:
	case p.pidfd >= 0:
		k.watch(unix.EPOLL_CTL_MOD, p.pidfd, unix.EPOLLIN, p, onPid)
	default:
		time.AfterFunc(time.Millisecond, func() { k.adoptExit(p) }) // once the workers run
	}
	if p.stdin.mem >= 0 {
		p.feeder().Recover(os.Getpid(), os.Getpid()) // it was ours, before
		p.recoverFeeder()
	}
	if at, scope, ok := p.slot.Deadline(); ok && (!p.exited || p.hasTreeTimeout) {
		k.setTimeout(p, at, scope)
	}
	if p.stdin.mem < 0 && !waits && len(p.owed) == 0 && !p.exited {
		return
	}
	time.AfterFunc(time.Millisecond, func() { // once the workers run
		if len(p.owed) > 0 {
			k.payOwed(p)
		}
		k.resume(p)
		p.mu.Lock()
		defer p.mu.Unlock()
		k.feed(p)
		if p.exited {
			k.checkTree(p)
			k.finish(p)
		}
	})
}
