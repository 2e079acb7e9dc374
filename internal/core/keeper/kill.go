//go:build linux

package keeper

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/suspendaware"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// killWait bounds how long a kill waits for the kernel to empty the tree.
const killWait = 10 * time.Second

// killLook is how often a kill looks meanwhile for what the kernel has left out.
const killLook = 100 * time.Millisecond

// intend notes why a signal is about to be sent. p.mu is held, and the exit of the
// process was not handled yet. If the process has exited all the same, the signal
// is not the cause: a keeper that was stopped, or that took over late, finds the
// exit and the deadline at the same time.
func (p *proc) intend(cause process.Cause, sig unix.Signal) {
	if p.pidfd < 0 || pidfd.Ended(p.pidfd, 0) {
		return
	}
	p.cause, p.causeSig = cause, int(sig)
	p.slot.NoteCause(cause, int(sig))
}

// undecided reports whether nothing was sent yet that ends the process for complete.
func (p *proc) undecided() bool {
	return p.cause == 0 || p.cause == process.CauseKilled && p.causeSig != int(unix.SIGKILL)
}

// signal sends sig to the leader, its process group or the whole tree, and
// reports whether anybody was there to receive it. p.mu is held.
func (k *Keeper) signal(p *proc, sig unix.Signal, scope process.Scope) bool {
	if !p.started || p.gone || p.final {
		return false
	}
	if sig == unix.SIGKILL {
		k.births.stir() // it may have made the keeper its tracer
	}
	if scope == process.ScopeGroup {
		return k.signalGroup(p, sig)
	}
	if scope == process.ScopeTree && sig == unix.SIGKILL && !p.group {
		return k.killWalk(p)
	}
	leader := !p.exited && unix.PidfdSendSignal(p.pidfd, sig, nil, 0) == nil
	if scope == process.ScopeTree {
		if sig == unix.SIGKILL && p.group && k.groups.Kill(p.ref.Slot) == nil {
			k.killHeadless(p.ref.Slot)
			return true
		}
		return k.eachMember(p, sig, func(pid int) bool { return pid != p.pid || p.exited }) || leader
	}
	return leader
}

// killHeadless kills the members of a cgroup whose first thread has ended and others run: the kernel
// signals the first one of each when it kills a cgroup.
func (k *Keeper) killHeadless(slot uint32) {
	pids, _ := k.groups.Members(slot)
	for _, pid := range pids {
		if stat, ok := procfs.ReadStat(pid); !ok || stat.State != 'Z' || stat.Dead() {
			continue
		}
		pidfd.Signal(pid, unix.SIGKILL, func() bool {
			still, _ := k.groups.Members(slot)
			return slices.Contains(still, pid)
		})
	}
}

// signalGroup sends sig to the group in which the process was started, and to the one that it
// leads if it has made one (setsid(1) as the command does). The kernel does not use the
// number of a group again while that has members. p.mu is held.
func (k *Keeper) signalGroup(p *proc, sig unix.Signal) bool {
	session, own := p.session(), 0
	if !p.exited {
		own, _ = unix.Getpgid(p.pid) // of a zombie too
	}
	any := (own == session || own == p.pid) && unix.Kill(-own, sig) == nil
	if own == session || !p.group {
		return any
	}
	return k.eachMember(p, sig, func(pid int) bool {
		g, err := unix.Getpgid(pid)
		return err == nil && g != own && (g == session || g == p.pid)
	}) || any
}

// eachMember signals the members of the tree that match and reports whether
// there were any.
func (k *Keeper) eachMember(p *proc, sig unix.Signal, match func(pid int) bool) bool {
	any := false
	for _, pid := range k.members(p) {
		if pidfd.Signal(pid, sig, func() bool { return match(pid) && slices.Contains(k.members(p), pid) }) {
			any = true
		}
	}
	return any
}

// members lists the pids of the tree: the cgroup's, or without one those of
// its sessions and of all descendants that still hang together.
func (k *Keeper) members(p *proc) []int {
	if p.group {
		if pids, err := k.groups.Members(p.ref.Slot); err == nil {
			return append(pids, k.escapees(p)...)
		}
	}
	return append(descendants(p), k.escapees(p)...)
}

// escapees are the pids of the strays that belong to p. p.mu is held.
func (k *Keeper) escapees(p *proc) (pids []int) {
	its, _, _ := k.escaped(p)
	for i := range its {
		pids = append(pids, its[i].pid)
	}
	return pids
}

// killWalk kills the tree if there is no cgroup. The children of a killed process are
// reparented to the subreaper, where a walk does not find them any more. So all
// processes are stopped first, until a walk finds no new one. A process that forks
// faster than that is found when the kill checks again.
func (k *Keeper) killWalk(p *proc) bool {
	stopped := map[int]int{} // pid to pidfd
	for range 16 {
		fresh := map[int]int{}
		for _, pid := range descendants(p) {
			if _, ok := stopped[pid]; ok {
				continue
			}
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				fresh[pid] = fd
			}
		}
		if len(fresh) == 0 {
			break
		}
		// A pid can be used again between the walk and the pidfd.
		still := descendants(p)
		for pid, fd := range fresh {
			if !slices.Contains(still, pid) {
				unix.Close(fd)
				continue
			}
			unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
			stopped[pid] = fd
		}
	}
	any := false
	for _, fd := range stopped {
		any = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil || any
		unix.Close(fd)
	}
	return any
}

// kill ends the tree for a cause (CauseKilled or CauseNoReaders). It waits until the
// kernel says that the tree is empty: the cgroup, and the list of processes that the
// subreapers were given. p.mu is not held.
func (k *Keeper) kill(p *proc, cause process.Cause) (*wire.Killed, *wire.Error) {
	p.mu.Lock()
	if !p.started || p.gone || p.final {
		p.mu.Unlock()
		return nil, &wire.Error{Code: wire.CodeExited}
	}
	if !p.exited && p.undecided() {
		p.intend(cause, unix.SIGKILL)
	}
	failpoint.Hit(failpoint.KillNoted)
	away := k.stopEscaped(p)
	k.signal(p, unix.SIGKILL, process.ScopeTree)
	for _, fd := range away {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	failpoint.Hit(failpoint.KillSent)
	group, slot := p.group, p.ref.Slot
	p.mu.Unlock()
	defer func() {
		for _, fd := range away {
			unix.Close(fd)
		}
	}()

	deadline := time.Now().Add(killWait)
	for group && !k.groups.WaitEmpty(slot, time.Now().Add(killLook)) && time.Now().Before(deadline) {
		k.births.stir()
		p.mu.Lock()
		if !p.final { // else the slot may have another owner
			k.killHeadless(slot) // one whose first thread was just ending
		}
		p.mu.Unlock()
	}
	for pause := time.Millisecond; ; pause = min(pause*2, 50*time.Millisecond) {
		p.mu.Lock()
		if p.exited {
			k.checkTree(p)
		}
		if p.gone && len(stillThere(away)) == 0 { // as it is most often
			p.mu.Unlock()
			return &wire.Killed{Verified: group && k.seesAll()}, nil
		}
		if p.final { // let go meanwhile, and its slot may have another owner
			p.mu.Unlock()
			return &wire.Killed{}, nil
		}
		its, unknown, complete := k.escaped(p)
		for i := range its {
			its[i].kill()
		}
		left := stillThere(away)
		for i := range its {
			left = append(left, its[i].pid)
		}
		if !p.gone && !p.nobodyKnown {
			members := k.members(p)
			left = append(left, members...)
			if !group && len(members) > 0 {
				k.signal(p, unix.SIGKILL, process.ScopeTree) // somebody forked meanwhile
			}
		}
		done := (p.gone || p.nobodyKnown) && len(left) == 0
		p.mu.Unlock()
		k.births.stir()
		if done || time.Now().After(deadline) {
			out := &wire.Killed{Verified: done && group && complete && len(unknown) == 0}
			slices.Sort(left)
			for _, pid := range slices.Compact(left) {
				out.Survivors, out.Names = append(out.Survivors, uint32(pid)), append(out.Names, nameOf(pid))
			}
			for i := range unknown {
				out.Strays, out.Names = append(out.Strays, uint32(unknown[i].pid)), append(out.Names, nameOf(unknown[i].pid))
			}
			return out, nil
		}
		time.Sleep(pause)
	}
}

// stopEscaped stops the descendants that have left the cgroup and whose parents still lead
// to the leader, until it finds no new one. When the leader is dead, nothing may
// show any more that they belong to it. It returns their pidfds by pid. p.mu is
// held.
func (k *Keeper) stopEscaped(p *proc) map[int]int {
	stopped := map[int]int{}
	for range 16 {
		fresh := false
		for _, s := range k.outside(p) {
			if _, ok := stopped[s.pid]; ok {
				continue
			}
			if fd, ok := s.open(); ok {
				unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
				stopped[s.pid], fresh = fd, true
			}
		}
		if !fresh {
			break
		}
	}
	return stopped
}

// stillThere are the pids of processes that have not ended.
func stillThere(pidfds map[int]int) (pids []int) {
	for pid, fd := range pidfds {
		if !pidfd.Ended(fd, 0) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// shutdown ends all processes: SIGTERM, a grace, SIGKILL to the trees.
func (k *Keeper) shutdown() {
	k.stopping.Store(true)
	hard := false
	each := func(f func(p *proc)) (live int) {
		for p := range k.all {
			if !p.mu.TryLock() {
				if p.slot.Flags()&board.FlagStarted == 0 { // it is just being started, and may hang at that
					live++
					if hard {
						k.groups.Kill(p.ref.Slot)
					}
					continue
				}
				p.mu.Lock()
			}
			if p.started && !p.final {
				live++
				f(p)
			}
			p.mu.Unlock()
		}
		return live
	}
	each(func(p *proc) {
		if !p.exited {
			p.intend(process.CauseShutdown, unix.SIGTERM)
		}
		k.signal(p, unix.SIGTERM, process.ScopeTree)
	})
	for g := suspendaware.New(shutdownGrace); !g.Over() && each(func(*proc) {}) > 0; {
		time.Sleep(5 * time.Millisecond)
	}
	hard = true
	for g := suspendaware.New(killWait); !g.Over(); time.Sleep(5 * time.Millisecond) {
		if each(func(p *proc) {
			k.signal(p, unix.SIGKILL, process.ScopeTree)
			if p.exited {
				k.checkTree(p)
			}
		}) == 0 {
			break
		}
	}
	k.endContainers()
	select { // containers that a keeper before left half made or half ended
	case <-k.settled:
	case <-time.After(endWait):
	}
	k.groups.RemoveAll()
	k.spares.RemoveAll()
}

// descendants walks the process table for the process, the members of its session, those of
// the session that it has made itself, and everything below them. Other descendants that made
// a session of their own and lost their parents are among the strays.
//
// The kernel does not use the number of a session again while that has members. So if a
// process has the number of the session, that is not the stub, the session is empty.
func descendants(p *proc) []int {
	leader, session := p.pid, p.session()
	if p.exited && procfs.Runs(leader) {
		leader = 0
	}
	if session != p.pid && procfs.Runs(session) {
		session = 0
	}
	all, _ := procfs.PIDs()
	parent := map[int]int{}
	in := map[int]bool{}
	for _, pid := range all {
		if stat, ok := procfs.ReadStat(pid); ok && !stat.Dead() {
			parent[pid] = stat.PPID
			if pid == leader || stat.Session != 0 && (stat.Session == leader || stat.Session == session) {
				in[pid] = true
			}
		}
	}
	for grew := true; grew; {
		grew = false
		for pid, ppid := range parent {
			if !in[pid] && in[ppid] {
				in[pid], grew = true, true
			}
		}
	}
	pids := make([]int, 0, len(in))
	for pid := range in {
		pids = append(pids, pid)
	}
	return pids
}
