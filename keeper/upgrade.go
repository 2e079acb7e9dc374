//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/procfs"
	"github.com/tend-run/tend/keeper/calm"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/memory"
	"github.com/tend-run/tend/keeper/vault"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/spool"
)

// An upgrade executes another program in this process. It stays the parent of
// its processes, keeps every descriptor, and even the epoll instance with what
// is registered there; a snapshot tells the other program the rest. Pipes fill
// for the few milliseconds that it takes. Connections of servers end, as they
// would in a crash: they come back and ask again.
//
// A program that cannot read the snapshot ends, and the anchor starts a keeper
// that takes over from the vaults: upgrade and crash are one path from there.

// upgrade goes on as the program at path. It returns only if that fails, and
// everything goes on as before then.
func (c *conn) upgrade(req uint64, path string) {
	err := c.k.upgrade(path)
	c.k.logf("upgrade to %s: %v", path, err)
	c.answer(req, &wire.Error{What: fmt.Sprintf("upgrade to %s: %v", path, err), Errno: errno(err)}, nil)
}

func (k *Keeper) upgrade(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st := &stillness{begun: procfs.BootTime(), arrived: make(chan struct{}, k.crew), over: make(chan struct{})}
	if !k.still.CompareAndSwap(nil, st) {
		return errors.New("another upgrade is under way")
	}
	defer k.thaw(st)
	if err := k.freeze(st); err != nil {
		return err
	}
	failpoint.Hit(failpoint.UpgradeFrozen)
	s := k.takeSnapshot(st)
	mem, err := memory.Create("tend-snapshot", 0)
	if err != nil {
		return err
	}
	defer unix.Close(mem)
	if _, err := spool.WriteAll(mem, s.encode(snapshotVersion)); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	memory.Seal(mem, memory.Constant)
	fds := append(s.descriptors(), mem)
	for i, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			closeOnExec(fds[:i])
			return fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	failpoint.Hit(failpoint.UpgradeSnapshot)
	argv := []string{"tend-keeper", "keeper", "--state-dir", k.cfg.StateDir, "--snapshot", fmt.Sprint(mem)}
	runtime.LockOSThread() // exec keeps the slack of the thread that calls it
	defer runtime.UnlockOSThread()
	calm.Thread()
	err = k.exec(path, argv)
	if errors.Is(err, unix.EACCES) { // a filesystem from which nothing may be executed
		err = k.execCopy(fd, argv)
	}
	closeOnExec(fds)
	return err
}

// exec executes a program in our place. It returns only if that fails.
func (k *Keeper) exec(path string, argv []string) error {
	if k.scripts != nil {
		defer k.scripts.RestoreLimit()()
	}
	return syscall.Exec(path, argv, k.cfg.Environ)
}

// execCopy executes a copy in memory of an open program.
func (k *Keeper) execCopy(fd int, argv []string) error {
	mem, err := memory.Create("tend-keeper", unix.MFD_EXEC)
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
	memory.Seal(mem, memory.Constant)
	return k.exec(fmt.Sprintf("/proc/self/fd/%d", mem), argv)
}

func closeOnExec(fds []int) {
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
}

// takeSnapshot reads the frozen keeper.
func (k *Keeper) takeSnapshot(st *stillness) *snapshot {
	s := &snapshot{Keeper: snapshotKeeper{
		EP: fdOut(k.ep), Board: fdOut(k.board.FD()), Wake: fdOut(k.wakeFD), Listen: fdOut(k.listen), Lock: fdOut(k.lock),
		Upgrades: k.upgrades + 1, Began: st.begun,
	}}
	for i, v := range k.vaults {
		sock, complete := v.Locked()
		s.Keeper.Vaults[i], s.Keeper.Complete[i] = fdOut(sock), complete
	}
	marks := k.groups.Marks()
	s.Keeper.Killed, s.Keeper.Limited = slotList(marks.Killed), slotList(marks.Limited)
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
	all := []int64{k.EP, k.Board, k.Wake, k.Listen, k.Lock, k.Vaults[vault.Anchor], k.Vaults[vault.Mirror]}
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
