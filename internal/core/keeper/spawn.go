//go:build linux

package keeper

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

// aloneWait bounds how long a start for which there were no descriptors waits for
// those that other starts take while they are under way.
const aloneWait = 100 * time.Millisecond

// spawn starts a process. For want of descriptors it is tried once more, without
// those that only save time, and alone: many starts at a time would else be refused
// for each other's sake, though one of them has room.
func (k *Keeper) spawn(req *wire.Spawn) (*wire.Spawned, *wire.Error) {
	k.starting.Add(1)
	out, werr := k.spawnOnce(req)
	k.starting.Add(-1)
	if werr == nil || werr.Errno != uint32(unix.EMFILE) && werr.Errno != uint32(unix.ENFILE) {
		return out, werr
	}
	late := time.NewTimer(aloneWait)
	defer late.Stop()
	select {
	case k.alone <- struct{}{}:
		defer func() { <-k.alone }()
	case <-late.C:
		return nil, werr
	}
	for end := time.Now().Add(aloneWait); k.starting.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	k.shedFiles()
	return k.spawnOnce(req)
}

// spawnOnce starts a process. The steps are in the order that a death of the
// keeper between any two needs: the slot is reserved, the spec is on disk, the
// vaults hold the pipes, the program runs in the slot's cgroup, its pid is on
// the board, the directory has its name, the start is on disk, the board
// announces it, the server is answered. The next keeper finds out how far it
// came (see completeStart): from the fork on the start is completed, before it is
// undone, so a start that the server repeats is done once.
func (k *Keeper) spawnOnce(req *wire.Spawn) (*wire.Spawned, *wire.Error) {
	spec, err := spool.DecodeSpec(req.Spec)
	if err != nil {
		return nil, &wire.Error{Code: wire.CodeInvalid, What: "spec: " + err.Error()}
	}
	if err := spec.Validate(); err != nil {
		return nil, &wire.Error{Code: wire.CodeInvalid, What: err.Error()}
	}
	if spec.ID == "" || len(req.Argv) == 0 {
		return nil, &wire.Error{Code: wire.CodeInvalid, What: "id and argv are needed"}
	}
	if k.still.Load() != nil {
		return nil, &wire.Error{Code: wire.CodeBusy} // the server asks again
	}
	b, werr := k.comeIn(&spec, req)
	if werr != nil {
		return nil, werr
	}
	if b != nil {
		defer b.mu.RUnlock()
	}
	if k.stopping.Load() {
		return nil, &wire.Error{Code: wire.CodeLimit, What: "the daemon is shutting down"}
	}
	p, werr, old := k.reserve(spec.ID)
	for old != nil {
		out, refusal, removed := k.existing(old, &spec)
		if !removed {
			return out, refusal
		}
		p, werr, old = k.reserve(spec.ID)
	}
	if werr != nil {
		return nil, werr
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	failpoint.Hit(failpoint.SpawnReserved)
	p.setSpec(&spec)
	p.setSync(req.Sync)
	if p.container.Store(b); b != nil {
		k.groups.Place(p.ref.Slot, b.container.Nest)
	}
	if werr := k.start(p, &spec, req); werr != nil {
		k.abandon(p)
		return nil, werr
	}
	failpoint.Hit(failpoint.SpawnUnanswered)
	return &wire.Spawned{Ref: p.ref, PID: uint32(p.pid), Keeper: uint32(os.Getpid()), Inner: p.inner}, nil
}

// existing answers a start of an id that the keeper knows. removed: that one is
// over and its output was removed; only its slot is not given back yet, and the
// id is free now.
func (k *Keeper) existing(p *proc, spec *process.Spec) (out *wire.Spawned, werr *wire.Error, removed bool) {
	p.mu.Lock() // waits for the start that may be under way
	defer p.mu.Unlock()
	if !p.started {
		return nil, &wire.Error{Code: wire.CodeBusy}, false
	}
	j, err := spool.ReadJournal(p.dir)
	if p.final && errors.Is(err, process.ErrNotFound) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.ids[p.id] == p {
			delete(k.ids, p.id)
		}
		return nil, nil, true
	}
	if err != nil || !j.Asked(spec) {
		return nil, &wire.Error{Code: wire.CodeExists}, false
	}
	return &wire.Spawned{Ref: p.ref, PID: uint32(p.pid), Existing: true, Keeper: uint32(os.Getpid()), Inner: p.inner}, nil, false
}

func (k *Keeper) start(p *proc, spec *process.Spec, req *wire.Spawn) *wire.Error {
	now := time.Now()
	var err error
	if p.dir, p.journal, err = k.spares.Take(p.id); err != nil {
		p.dir = "" // not ours: abandon must not remove it
		if errors.Is(err, process.ErrExists) {
			return &wire.Error{Code: wire.CodeExists}
		}
		return resourceError("spool", err)
	}
	if p.journal >= 0 {
		k.cached.Add(1)
	}
	if err := k.appendJournal(p, spool.AppendEncodedSpec(nil, now, req.Spec)); err != nil {
		return resourceError("spool", err)
	}
	failpoint.Hit(failpoint.SpawnSpec)
	group, err := k.groups.Open(p.ref.Slot)
	switch err {
	case nil:
		defer unix.Close(group)
		p.group = true
	case unix.EMFILE, unix.ENFILE:
		return resourceError("cgroup", err)
	default:
		k.groups.Refused(err)
		p.slot.Set(board.FlagNoGroup)
	}
	child, werr := k.openStreams(p, spec, req)
	defer func() {
		for i, fd := range child {
			if fd != k.null && (i == 0 || fd != child[i-1]) {
				unix.Close(fd)
			}
		}
	}()
	if werr != nil {
		return werr
	}
	if k.isLast(child[2]) {
		return resourceError("pipes", unix.EMFILE)
	}
	k.deposit(p)
	failpoint.Hit(failpoint.SpawnVaulted)
	p.slot.NotePID(board.Forking)
	failpoint.Hit(failpoint.SpawnForking)
	if werr := k.execute(p, spec, req, child, group); werr != nil {
		return werr
	}
	failpoint.Hit(failpoint.SpawnForked)
	p.slot.NotePID(p.pid)
	p.started = true
	failpoint.Hit(failpoint.SpawnNoted)
	k.depositMore(p, []byte{wire.FDPid}, []int{p.pidfd})
	failpoint.Hit(failpoint.SpawnPidfd)
	if final, err := k.spares.Settle(p.dir, p.id); err != nil {
		k.killNow(p)
		p.started = false
		return resourceError("spool", err)
	} else {
		p.dir = final
	}
	failpoint.Hit(failpoint.SpawnSettled)
	k.record(p, p.appendStart(nil, now, p.pid))
	if p.stdin.open {
		p.slot.Set(board.FlagStdinOpen)
	}
	failpoint.Hit(failpoint.SpawnRecorded)
	p.slot.SetStarted(p.pid, now)
	failpoint.Hit(failpoint.SpawnAnnounced)
	if spec.Timeout > 0 {
		k.setTimeout(p, procfs.BootTime()+spec.Timeout.Nanoseconds(), spec.TimeoutScope)
	}
	for i := range p.out {
		if s := &p.out[i]; !s.eof {
			k.watch(unix.EPOLL_CTL_ADD, s.fd, unix.EPOLLIN, p, i)
		}
	}
	if p.stdin.fd >= 0 {
		k.watch(unix.EPOLL_CTL_ADD, p.stdin.fd, 0, p, onStdin)
	}
	k.watch(unix.EPOLL_CTL_ADD, p.pidfd, unix.EPOLLIN, p, onPid)
	return nil
}

// execute runs the program: own session, own cgroup, and no wrapper process.
func (k *Keeper) execute(p *proc, spec *process.Spec, req *wire.Spawn, child []int, group int) *wire.Error {
	k.groups.Lift(p.ref.Slot)
	own, err := k.groups.Limit(p.ref.Slot, p.ref.Gen, p.group, &spec.Limits)
	if err != nil {
		return wire.StartError(process.StartLimits, errno(err), err.Error())
	}
	failpoint.Hit(failpoint.SpawnLimited)
	prog := &spawn.Program{Path: req.Path, Argv: req.Argv, Env: req.Env, Dir: req.Dir, Files: child, Terminal: spec.PTY != nil, Group: group}
	if req.Cred {
		prog.User = &spawn.User{UID: req.UID, GID: req.GID, Groups: req.Groups}
	}
	k.limitProgram(prog, &spec.Limits)
	if prog.Own, err = own.Tasks(); err != nil {
		return resourceError("cgroup", err)
	}
	defer unixsock.Close(prog.Own)
	b := p.container.Load()
	if b != nil {
		if werr := withoutCores(prog); werr != nil {
			return werr
		}
		if err := k.enter(p, b, prog); err != nil {
			return resourceError("sandbox", err)
		}
	}
	pid, err := k.fork(p, prog)
	if err != nil {
		return startError(err, req, &spec.Limits, b)
	}
	p.pid, p.inner = pid, p.slot.Inner()
	return nil
}

// limitProgram has the child limit itself, before it executes the program, by what the
// kernel gives to a process and not to a cgroup.
func (k *Keeper) limitProgram(prog *spawn.Program, l *process.Limits) {
	prog.Nice = l.Nice
	if l.OOMScoreAdj != 0 || k.stats.resetOOM {
		prog.OOM = &l.OOMScoreAdj
	}
	for _, r := range l.Rlimits {
		prog.Limits = append(prog.Limits, spawn.Limit{Resource: r.Resource, Soft: r.Soft, Hard: r.Hard})
	}
}

// fork makes the program's process, with the mark of p, whose pidfd it sets.
func (k *Keeper) fork(p *proc, prog *spawn.Program) (pid int, err error) {
	prog.PIDAt, prog.SessionAt, prog.FailedAt = p.slot.PIDAt(), p.slot.SessionAt(), p.slot.FailedAt()
	var was unix.Rlimit
	limited := slices.ContainsFunc(prog.Limits, func(l spawn.Limit) bool { return l.Resource == rlimitRTTime })
	if unix.Getrlimit(rlimitRTTime, &was) == nil && was.Max == unix.RLIM_INFINITY && !limited {
		prog.Limits = append(prog.Limits, spawn.Limit{Resource: rlimitRTTime, Soft: k.markOf(p.ref), Hard: was.Max, Try: true})
	}
	defer k.births.making()()
	pid, pidfd, err := k.scripts.Start(prog)
	if err == nil {
		p.pidfd = pidfd
	}
	return pid, err
}

// killNow ends a process whose start cannot be completed.
func (k *Keeper) killNow(p *proc) {
	p.slot.Set(board.FlagTakenBack) // before it can be collected: the next keeper would complete the start
	if p.group {
		k.groups.Kill(p.ref.Slot)
	}
	unix.Kill(p.pid, unix.SIGKILL)
	unix.Wait4(p.pid, nil, unix.WALL, nil)
}

// abandon takes back what a failed start did.
func (k *Keeper) abandon(p *proc) {
	for i := range p.out {
		s := &p.out[i]
		closeFD(&s.fd)
		closeFD(&s.stageR)
		closeFD(&s.stageW)
	}
	closeFD(&p.stdin.fd)
	closeFD(&p.pidfd)
	k.vaults.Drop(&p.vaulted, p.ref)
	k.closeFiles(p)
	k.groups.Unlimit(p.ref.Slot, p.ref.Gen)
	if p.dir != "" {
		if err := spool.RemoveDir(p.dir); err != nil {
			k.logf("process %s was not started, and its directory stays: %v", p.id, err)
		}
	}
	k.release(p)
}

// deposit puts all of the process's descriptors into both vaults. p.mu is held.
func (k *Keeper) deposit(p *proc) {
	kinds, fds := p.holdings()
	k.vaults.Put(&p.vaulted, true, p.ref, kinds, fds)
}

// depositMore adds descriptors. A vault that is being refilled gets all descriptors of
// the process, because the next step depends on the new ones. p.mu is held.
func (k *Keeper) depositMore(p *proc, kinds []byte, fds []int) {
	for i, v := range k.vaults {
		if v.Put(&p.vaulted[i], false, p.ref, kinds, fds) {
			continue
		}
		all, allFDs := p.holdings()
		v.Put(&p.vaulted[i], true, p.ref, all, allFDs)
	}
}

// holdings are the descriptors that must outlive the keeper.
func (p *proc) holdings() (kinds []byte, fds []int) {
	add := func(kind byte, fd int) {
		if fd >= 0 {
			kinds, fds = append(kinds, kind), append(fds, fd)
		}
	}
	if p.pty {
		add(wire.FDPTY, p.out[0].fd)
		add(wire.FDStageR, p.out[0].stageR)
		add(wire.FDStageW, p.out[0].stageW)
	} else {
		add(wire.FDStdout, p.out[0].fd)
		add(wire.FDStderr, p.out[1].fd)
		add(wire.FDStdin, p.stdin.fd)
	}
	add(wire.FDStdinMem, p.stdin.mem)
	add(wire.FDFeedR, p.stdin.feedR)
	add(wire.FDFeedW, p.stdin.feedW)
	add(wire.FDPid, p.pidfd)
	return kinds, fds
}

// appendStart appends what the journal says of a start.
func (p *proc) appendStart(b []byte, at time.Time, pid int) []byte {
	b = spool.AppendStarted(b, at, spool.Started{PID: pid, BootID: procfs.BootID()})
	if p.inner != 0 {
		b = spool.AppendInside(b, at, int(p.inner))
	}
	return spool.AppendPlace(b, at, spool.Place{Slot: p.ref.Slot, Gen: p.ref.Gen})
}
