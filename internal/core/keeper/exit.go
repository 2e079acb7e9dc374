//go:build linux

package keeper

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/reaplog"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// onPidfd handles the event that the leader has exited. p.mu is held.
func (k *Keeper) onPidfd(p *proc) {
	if p.exited || p.pidfd < 0 {
		return
	}
	var info unix.Siginfo
	var usage unix.Rusage
	// The exit is recorded before the process is reaped: if the keeper dies in between,
	// the next one still finds the status. WALL: a process that starts inside a container and is
	// killed before its exec sends no signal at its end.
	err := unix.Waitid(unix.P_PIDFD, p.pidfd, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, &usage)
	switch {
	case err == unix.ECHILD:
		// Its keeper died: it is the anchor's child now.
		go k.awaitStatus(p)
		return
	case err != nil || info.Signo == 0:
		k.exitLater(p)
		return
	}
	e := reaplog.FromStatus(reaplog.StatusOf(&info))
	e.UserTime, e.SystemTime = time.Duration(usage.Utime.Nano()), time.Duration(usage.Stime.Nano())
	e.MaxRSS = usage.Maxrss << 10
	pidfd := p.pidfd
	p.pidfd = -1
	k.exit(p, e)
	failpoint.Hit(failpoint.ExitAnnounced)
	unix.Waitid(unix.P_PIDFD, pidfd, &info, unix.WEXITED|unix.WNOHANG|unix.WALL, nil)
	k.unwatch(pidfd)
	unix.Close(pidfd)
}

// exitLater looks for the exit again. A tracer has it first, and may keep it for as long as it
// lives, while the pidfd is readable all the time. p.mu is held.
func (k *Keeper) exitLater(p *proc) {
	if p.traced {
		return
	}
	p.traced = true
	p.tracedFor = min(max(2*p.tracedFor, time.Millisecond), time.Second)
	time.AfterFunc(p.tracedFor, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.traced = false
		if k.owns(p) {
			k.onPidfd(p)
		}
	})
}

// collectWait bounds the wait for an exit status that the parent has not collected
// yet: the parent may be stopped.
const collectWait = time.Minute

// awaitStatus waits for the status of a process that a former keeper started. When
// that keeper died, the process became a child of the anchor or the launcher, and
// this role collects the status. Linux 6.15 and later also keep it for holders of a
// pidfd. A status that neither has is reported as lost; it is never invented.
func (k *Keeper) awaitStatus(p *proc) {
	p.mu.Lock()
	pid, reserved := p.pid, p.slot.Reserved()
	p.mu.Unlock()
	var e *process.Exit
	last := time.Now().Add(collectWait)
	for wait := time.Millisecond; e == nil && wait < 4*time.Second; {
		uncollected := false
		if e = reaplog.Find(k.run.Path(rundir.Orphans), pid, reserved); e == nil {
			p.mu.Lock()
			if p.pidfd >= 0 {
				e = pidfdExit(p.pidfd)
				uncollected = unix.PidfdSendSignal(p.pidfd, 0, nil, 0) == nil
			}
			p.mu.Unlock()
		}
		if e == nil {
			time.Sleep(wait)
			if wait < 50*time.Millisecond || !uncollected || time.Now().After(last) {
				wait *= 2
			}
		}
	}
	if e == nil {
		e = &process.Exit{Code: -1, Cause: process.CauseLost}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.exited {
		k.exit(p, e)
	}
}

// pidfdExit asks the kernel for the exit status kept with a pidfd (Linux 6.15); nil if
// the kernel does not know it.
func pidfdExit(pidfd int) *process.Exit {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(pidfd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return nil
	}
	return reaplog.FromStatus(unix.WaitStatus(info.Exit_code))
}

// killedChild is the exit code of a shell whose program was killed.
const killedChild = 128 + int(unix.SIGKILL)

// exit makes the exit a fact: what the pipes held first, then the journal,
// then the board.
func (k *Keeper) exit(p *proc, e *process.Exit) {
	p.exited = true
	k.births.stir()
	e.Time = time.Now()
	switch {
	case e.Cause == process.CauseLost:
	case e.Signal == 0 && e.Code == killedChild && k.groups.OOMKilled(p.ref.Slot, p.ref.Gen):
		e.Cause = process.CauseOOM
	case e.Signal == 0:
		e.Cause = process.CauseExited
	case p.cause == process.CauseShutdown: // by one signal or another
		e.Cause = p.cause
	case p.cause != 0 && e.Signal == p.causeSig:
		e.Cause = p.cause
	case e.Signal == int(unix.SIGKILL) && k.groups.OOMKilled(p.ref.Slot, p.ref.Gen):
		e.Cause = process.CauseOOM
	default:
		e.Cause = process.CauseSignalled
	}
	if p.timer != nil && (e.Cause == process.CauseTimeout || !p.hasTreeTimeout) {
		p.timer.Stop()
	}
	open := [2]bool{!p.out[0].eof, !p.out[1].eof}
	failpoint.Hit(failpoint.ExitSeen)
	k.drain(p)
	failpoint.Hit(failpoint.ExitDrained)
	var rec []byte
	var eof uint32
	for i := range p.out {
		if s := &p.out[i]; open[i] && s.eof {
			rec = spool.AppendEOF(rec, e.Time, s.stream, s.end)
			eof |= board.FlagEOF(s.stream)
		}
	}
	rec = spool.AppendExited(rec, e.Time, e)
	// Usually the tree is gone, too. One write and one announcement are enough for
	// both: each announcement wakes the server.
	together, gone := p.group && p.sync != process.SyncExit, false
	if together {
		if gone = k.treeGone(p); gone {
			rec = spool.AppendTreeGone(rec, time.Now())
		}
	}
	k.record(p, rec)
	failpoint.Hit(failpoint.ExitRecorded)
	if p.sync == process.SyncExit {
		p.pendingExit = e
		k.syncs.now(p) // it begins when p.mu is unlocked
	}
	p.publish(eof)
	if p.pendingExit == nil {
		p.slot.SetExit(e)
	}
	if !p.group && p.pendingExit == nil {
		k.announce(p) // to look for descendants takes a walk through /proc
	}
	switch {
	case gone:
		k.publishGone(p)
	case together:
		k.watchOn(p)
	default:
		k.checkTree(p)
	}
	if !p.final && p.pendingExit == nil {
		k.announce(p)
	}
	if p.pidfd >= 0 {
		k.unwatch(p.pidfd)
		closeFD(&p.pidfd)
	}
	if !p.pty {
		k.closeStdin(p)
	}
}

// checkTree finds out whether descendants are left, and watches them if so.
func (k *Keeper) checkTree(p *proc) {
	if !p.exited || p.gone || p.final {
		return
	}
	if !k.treeGone(p) {
		k.watchOn(p)
		return
	}
	k.record(p, spool.AppendTreeGone(nil, time.Now()))
	k.publishGone(p)
}

// treeGone reports whether the whole tree of an exited process has ended. p.mu is
// held.
func (k *Keeper) treeGone(p *proc) bool {
	p.nobodyKnown = false
	if p.group {
		if !k.watchTree(p) {
			return false
		}
	} else if !p.out[0].eof || !p.out[1].eof || len(descendants(p)) > 0 {
		return false
	}
	its, unknown, _ := k.escaped(p)
	p.nobodyKnown = len(its) == 0
	return p.nobodyKnown && len(unknown) == 0
}

// publishGone publishes that the tree is gone. The journal says so already.
func (k *Keeper) publishGone(p *proc) {
	p.gone = true
	failpoint.Hit(failpoint.TreeRecorded)
	p.publish(board.FlagTreeGone)
	k.finish(p)
}

// watchOn looks at the tree again later, unless the kernel reports its end.
func (k *Keeper) watchOn(p *proc) {
	if !p.group || p.treeFD < 0 || !cgroup.Populated(p.treeFD) {
		k.checkTreeLater(p)
	}
}

// checkTreeLater looks again. Descendants that left the cgroup may live for days, so
// the pauses become longer.
func (k *Keeper) checkTreeLater(p *proc) {
	if p.looking {
		return
	}
	p.looking = true
	p.pause = min(max(p.pause*5/4, 250*time.Millisecond), 10*time.Second)
	time.AfterFunc(p.pause, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.looking = false
		k.checkTree(p)
	})
}

// watchTree reports whether the cgroup is empty. If it is not, the kernel reports
// when it is: cgroup.events becomes readable with EPOLLPRI.
func (k *Keeper) watchTree(p *proc) bool {
	if p.treeFD < 0 {
		fd, err := k.again(func() (int, error) { return k.groups.OpenEvents(p.ref.Slot) })
		if err == unix.EMFILE || err == unix.ENFILE {
			k.checkTreeLater(p) // nothing is known
			return false
		}
		if err != nil {
			return true
		}
		if !cgroup.Populated(fd) {
			unix.Close(fd)
			return true
		}
		p.treeFD = fd
		k.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLPRI, p, onTree)
	}
	if cgroup.Populated(p.treeFD) {
		k.watch(unix.EPOLL_CTL_MOD, p.treeFD, unix.EPOLLPRI, p, onTree)
		return !cgroup.Populated(p.treeFD)
	}
	return true
}

// finish makes the process final when nothing can happen to it any more: it has
// exited, its tree is gone or let go, and its streams have ended. Without a tree no process
// holds a stream. The exception is a descriptor that was passed to a process
// outside: what that one writes is not read any more.
func (k *Keeper) finish(p *proc) {
	if !p.exited || !p.gone && !p.letGo || p.final {
		return
	}
	if p.group {
		open := [2]bool{!p.out[0].eof, !p.out[1].eof} // drain may find both ends
		k.drain(p)
		for i := range p.out {
			s := &p.out[i]
			full := p.policy == process.Block && s.end-s.base >= p.limit
			if !open[i] || s.waiting && !full {
				continue
			}
			if !s.eof {
				k.closeStream(p, s)
			}
			k.record(p, spool.AppendEOF(nil, time.Now(), s.stream, s.end))
			p.publish(board.FlagEOF(s.stream))
		}
	}
	if !p.out[0].eof || !p.out[1].eof {
		return
	}
	k.recordInput(p)
	k.recordWriters(p)
	if len(p.deferred) > 0 {
		return
	}
	if p.busy || p.dirty { // a last sync, after which this is called again
		if !p.busy {
			k.syncs.now(p)
		}
		return
	}
	p.final = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.slot.Clear(board.FlagNoSpace) // the server copies the flags with the next
	p.slot.Set(board.FlagFinal)
	k.announce(p)
	failpoint.Hit(failpoint.Final)
	k.closeStdin(p)
	if p.treeFD >= 0 {
		k.unwatch(p.treeFD)
		closeFD(&p.treeFD)
	}
	k.closeFiles(p)
	k.groups.Unlimit(p.ref.Slot, p.ref.Gen)
	k.vaults.Drop(&p.vaulted, p.ref)
}

// setTimeout kills the processes in scope when CLOCK_BOOTTIME reaches a time. That
// clock cannot be set, and the time is on the board, so neither a clock change nor the
// death of a role moves a timeout. The keeper ends the process even while no server
// runs.
func (k *Keeper) setTimeout(p *proc, bootNS int64, scope process.Scope) {
	p.slot.SetDeadline(bootNS, scope)
	p.hasTreeTimeout = scope == process.ScopeTree
	p.timer = time.AfterFunc(time.Duration(bootNS-procfs.BootTime()), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.final {
			return
		}
		if !p.exited {
			p.intend(process.CauseTimeout, unix.SIGKILL)
		}
		k.signal(p, unix.SIGKILL, scope)
	})
}
