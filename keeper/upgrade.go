//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
)

// An upgrade executes another program in this process. It stays the parent of
// its processes, keeps every descriptor, and even the epoll instance with what
// is registered there; a snapshot tells the other program the rest. Pipes fill
// for the few milliseconds that it takes. Connections of servers end, as they
// would in a crash: they come back and ask again.
//
// A program that cannot read the snapshot ends, and the anchor starts a keeper
// that takes over from the vaults: upgrade and crash are one path from there.

// freezeTime bounds how long everything may take to come to a stand.
const freezeTime = 2 * time.Second

// stillness is an upgrade under way: where the workers wait.
type stillness struct {
	begun   int64         // CLOCK_BOOTTIME, ns
	arrived chan struct{} // capacity: one for each worker
	over    chan struct{} // closed when they may go on
	locked  []*proc       // whose locks the upgrade holds
	whole   bool          // it holds the keeper's and the vaults' locks too
}

// standStill keeps a worker while an upgrade is under way.
func (k *Keeper) standStill() {
	if st := k.still.Load(); st != nil {
		st.arrived <- struct{}{}
		<-st.over
	}
}

// upgrade goes on as the program at path. It returns only if that fails, and
// everything goes on as before then.
func (c *conn) upgrade(req uint64, path string) {
	err := c.k.upgrade(path)
	c.k.logf("upgrade to %s: %v", path, err)
	c.fail(req, &wire.Error{What: fmt.Sprintf("upgrade to %s: %v", path, err), Errno: errno(err)})
}

func (k *Keeper) upgrade(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st := &stillness{begun: bootTime(), arrived: make(chan struct{}, k.crew), over: make(chan struct{})}
	if !k.still.CompareAndSwap(nil, st) {
		return errors.New("another upgrade is under way")
	}
	defer k.thaw(st)
	if err := k.freeze(st); err != nil {
		return err
	}
	failpoint.Hit(failpoint.UpgradeFrozen)
	s := k.takeSnapshot(st)
	mem, err := unix.MemfdCreate("tend-snapshot", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer unix.Close(mem)
	if _, err := writeAll(mem, s.encode(snapshotVersion)); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	fds := append(s.descriptors(), mem)
	for i, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			closeOnExec(fds[:i])
			return fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	failpoint.Hit(failpoint.UpgradeSnapshot)
	argv := []string{"tend-keeper", "keeper", "--state-dir", k.cfg.StateDir, "--snapshot", fmt.Sprint(mem)}
	err = syscall.Exec(path, argv, k.cfg.Environ)
	if errors.Is(err, unix.EACCES) { // a filesystem from which nothing may be executed
		err = execCopy(fd, argv, k.cfg.Environ)
	}
	closeOnExec(fds)
	return err
}

// execCopy executes a copy in memory of an open program.
func execCopy(fd int, argv, environ []string) error {
	mem, err := unix.MemfdCreate("tend-keeper", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3
		mem, err = unix.MemfdCreate("tend-keeper", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return err
	}
	defer unix.Close(mem)
	for {
		n, err := unix.Sendfile(mem, fd, nil, 1<<30)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n == 0 {
			break
		}
	}
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", mem), argv, environ)
}

func closeOnExec(fds []int) {
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
}

// freeze brings everything to a stand: no worker runs, no process is touched,
// no start begins. What it locks, thaw lets go.
func (k *Keeper) freeze(st *stillness) error {
	event, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(event)
	if err := unix.EpollCtl(k.ep, unix.EPOLL_CTL_ADD, event, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: onFreeze}); err != nil {
		return err
	}
	late := time.NewTimer(freezeTime)
	defer late.Stop()
	for range k.crew {
		select {
		case <-st.arrived:
		case <-late.C:
			return errors.New("a worker is held up by the filesystem")
		}
	}
	end := time.Now().Add(freezeTime)
	for {
		if err := k.lockAll(st, end); err != nil {
			return err
		}
		k.mu.Lock()
		if k.allLocked(st) {
			for _, v := range k.vaults {
				v.mu.Lock()
			}
			st.whole = true
			return nil
		}
		k.mu.Unlock()
	}
}

// lockAll takes the locks of all processes that it does not hold yet.
func (k *Keeper) lockAll(st *stillness, end time.Time) error {
	have := make(map[*proc]bool, len(st.locked))
	for _, p := range st.locked {
		have[p] = true
	}
	for i := range k.procs {
		p := k.procs[i].Load()
		if p == nil || have[p] {
			continue
		}
		for !p.tryStill() {
			if time.Now().After(end) {
				return fmt.Errorf("process %s is held by the filesystem or by a start that does not end", p.id)
			}
			time.Sleep(50 * time.Microsecond)
		}
		st.locked = append(st.locked, p)
	}
	return nil
}

// tryStill takes the lock, unless the exit is just being forced to the disk, or
// bytes are in our own memory: snapshots know of no such state.
func (p *proc) tryStill() bool {
	if !p.mu.TryLock() {
		return false
	}
	if p.untold != nil || len(p.out[0].rest) > 0 || len(p.out[1].rest) > 0 {
		p.mu.Unlock()
		return false
	}
	return true
}

// allLocked: k.mu is held, so no slot gets an owner now.
func (k *Keeper) allLocked(st *stillness) bool {
	have := make(map[*proc]bool, len(st.locked))
	for _, p := range st.locked {
		have[p] = true
	}
	for i := range k.procs {
		if p := k.procs[i].Load(); p != nil && !have[p] {
			return false
		}
	}
	return true
}

// thaw lets everything go on.
func (k *Keeper) thaw(st *stillness) {
	if st.whole {
		for _, v := range k.vaults {
			v.mu.Unlock()
		}
		k.mu.Unlock()
	}
	for _, p := range st.locked {
		p.mu.Unlock()
	}
	k.still.Store(nil)
	close(st.over)
}

// takeSnapshot reads the frozen keeper.
func (k *Keeper) takeSnapshot(st *stillness) *snapshot {
	s := &snapshot{Keeper: snapshotKeeper{
		EP: fdOut(k.ep), Board: fdOut(k.board.FD()), Wake: fdOut(k.wakeFD), Listen: fdOut(k.listen), Lock: fdOut(k.lock),
		Upgrades: k.upgrades + 1, Began: st.begun,
	}}
	for i, v := range k.vaults {
		s.Keeper.Vaults[i], s.Keeper.Complete[i] = fdOut(v.sock), v.sock >= 0 && !v.behind
	}
	if k.groups.root != "" {
		s.Keeper.Killed, s.Keeper.Limited = slotList(k.groups.killed), slotList(k.groups.limited)
	}
	s.Procs = make([]snapshotProc, 0, len(st.locked))
	for _, p := range st.locked {
		if k.procs[p.ref.Slot].Load() == p && p.started {
			s.Procs = append(s.Procs, p.snapshot())
		}
	}
	return s
}

// fdOut is a descriptor as a snapshot has it: 0 for none.
func fdOut(fd int) int64 { return int64(max(fd, 0)) }

// fdIn is the reverse.
func fdIn(v int64) int {
	if v <= 0 {
		return -1
	}
	return int(v)
}

func when(on bool, bit int64) int64 {
	if on {
		return bit
	}
	return 0
}

func (p *proc) snapshot() snapshotProc {
	out := snapshotProc{
		Slot: int64(p.ref.Slot), Gen: int64(p.ref.Gen), PID: int64(p.pid), PIDFD: fdOut(p.pidfd),
		Flags: when(p.started, snapStarted) | when(p.exited, snapExited) | when(p.gone, snapGone) | when(p.final, snapFinal) | when(p.pty, snapPTY) |
			when(p.group, snapGroup) | when(p.stdin.open, snapStdinOpen) | when(p.hasTreeTimeout, snapTreeTimeout),
		StdinFD: fdOut(p.stdin.fd), Mem: fdOut(p.stdin.mem), FeedR: fdOut(p.stdin.feedR), FeedW: fdOut(p.stdin.feedW),
		IndexEnd: p.indexEnd, Limit: p.limit, Policy: int64(p.policy), Cause: int64(p.cause), CauseSig: int64(p.causeSig),
		TreeFD: fdOut(p.treeFD), Owed: p.owed,
	}
	for i := range p.out {
		s := &p.out[i]
		out.Out[i] = snapshotStream{FD: fdOut(s.fd), StageR: fdOut(s.stageR), StageW: fdOut(s.stageW), Base: s.base, End: s.end, Unpunched: s.unpunched,
			Flags: when(s.fallback, snapFallback) | when(s.waiting, snapWaiting) | when(s.eof, snapEOF)}
	}
	return out
}

// descriptors are all that must stay open.
func (s *snapshot) descriptors() []int {
	k := &s.Keeper
	all := []int64{k.EP, k.Board, k.Wake, k.Listen, k.Lock, k.Vaults[inAnchor], k.Vaults[inMirror]}
	for i := range s.Procs {
		p := &s.Procs[i]
		all = append(all, p.PIDFD, p.StdinFD, p.Mem, p.FeedR, p.FeedW, p.TreeFD)
		for _, o := range p.Out {
			all = append(all, o.FD, o.StageR, o.StageW)
		}
	}
	fds := make([]int, 0, len(all))
	for _, fd := range all {
		if fd > 0 {
			fds = append(fds, int(fd))
		}
	}
	return fds
}

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
	for i := range k.vaults {
		if k.vaults[i], err = newVault(fdIn(g.Vaults[i])); err != nil {
			return err
		}
		v := k.vaults[i]
		v.refill = func(again func(put func() bool) bool) bool { return k.handOver(i, again) }
	}
	k.groups = findCgroups(k.cfg.StateDir)
	if k.groups.root != "" {
		k.groups.killed, k.groups.limited = slotsOf(g.Killed), slotsOf(g.Limited)
	}
	k.stats = probeMachine(k.spool, k.groups)
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
		if v.sock >= 0 && !g.Complete[i] {
			v.renew()
		}
	}
	if sock := k.vaults[inMirror].sock; sock >= 0 {
		ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: onMirror}
		unix.EpollCtl(k.ep, unix.EPOLL_CTL_MOD, sock, &ev)
	}
	one := [8]byte{1}
	unix.Write(k.wakeFD, one[:])
	failpoint.Hit(failpoint.UpgradeRestored)
	k.upgrades, k.last = g.Upgrades, time.Duration(bootTime()-g.Began)
	k.logf("went on in place with %d processes after %v", len(s.Procs), k.last)
	return nil
}

func (k *Keeper) restoreProc(in *snapshotProc, g *snapshotKeeper) {
	if in.Slot < 0 || in.Slot >= board.Slots {
		return
	}
	slot := k.board.Slot(uint32(in.Slot))
	p := newProc(wire.Ref{Slot: uint32(in.Slot), Gen: uint32(in.Gen)}, slot.ID(), slot)
	p.dir = k.spool + "/" + string(p.id)
	has := func(bit int64) bool { return in.Flags&bit != 0 }
	p.started, p.exited, p.gone, p.final = has(snapStarted), has(snapExited), has(snapGone), has(snapFinal)
	p.pty, p.group, p.hasTreeTimeout = has(snapPTY), has(snapGroup), has(snapTreeTimeout)
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
	k.ids[p.id] = p
	k.procs[in.Slot].Store(p)
	if !p.final {
		k.resumeSync(p)
		k.rearm(p)
	}
}

// rearm takes up what was under way. All descriptors are registered and armed
// as they were: no event was taken that a worker did not see through. Only an
// exit may have been left to a goroutine that is no more.
func (k *Keeper) rearm(p *proc) {
	waits := p.out[0].waiting || p.out[1].waiting
	if p.pidfd >= 0 && !p.exited {
		k.watch(unix.EPOLL_CTL_MOD, p.pidfd, unix.EPOLLIN, p, onPid)
	}
	if p.stdin.mem >= 0 {
		if who := p.slot.Feeder(); who != 0 {
			if _, _, alive := procStat(who); !alive || who == os.Getpid() {
				p.slot.ClearFeeder(who)
				p.feeder().Resync()
			}
		}
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
