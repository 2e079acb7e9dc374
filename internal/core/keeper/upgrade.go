//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/gomonitor"
	"github.com/tend-run/tend/internal/core/memfd"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// An upgrade executes another program in this process. It stays the parent of its
// processes and keeps their descriptors; a handover says which is which. The other
// program takes over as after a death (takeOver), with the descriptors handed to it
// instead of those in the vaults. Pipes fill for the few milliseconds that this takes.
// Connections of servers end, as in a crash: the servers reconnect and repeat their
// requests.
//
// A program that cannot read the handover ends, and the anchor starts a keeper
// that asks the vaults.

// upgrade continues as the program at path. It returns only if that fails, and
// everything continues as before then.
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
	k.endZygotes()
	h := k.handOver(st)
	mem, err := memfd.Create("tend-handover", 0)
	if err != nil {
		return err
	}
	defer unix.Close(mem)
	if _, err := eintr.Write(mem, h.encode(handoverVersion)); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	memfd.Seal(mem, memfd.Constant)
	fds := append(h.open(), mem)
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
	gomonitor.Thread()
	err = k.exec(path, argv)
	if errors.Is(err, unix.EACCES) { // a filesystem from which nothing may be executed
		err = k.execCopy(fd, argv)
	}
	closeOnExec(fds)
	return err
}

// exec executes a program in our place. It returns only if that fails.
func (k *Keeper) exec(path string, argv []string) error {
	defer k.scripts.RestoreLimit()()
	return syscall.Exec(path, argv, k.cfg.Environ)
}

// execCopy executes a copy in memory of an open program.
func (k *Keeper) execCopy(fd int, argv []string) error {
	mem, err := memfd.Create("tend-keeper", unix.MFD_EXEC)
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
	memfd.Seal(mem, memfd.Constant)
	return k.exec(fmt.Sprintf("/proc/self/fd/%d", mem), argv)
}

func closeOnExec(fds []int) {
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
}

// handOver reads the frozen keeper.
func (k *Keeper) handOver(st *stillness) *handover {
	h := &handover{Keeper: handoverKeeper{Epoll: fdOut(k.ep), Lock: fdOut(k.lock), Upgrades: k.upgrades + 1, Began: st.begun}}
	h.Keeper.FDs.put(globalKinds, []int{k.board.FD(), k.wakeFD, k.listen})
	for i, v := range k.vaults {
		sock, complete := v.Locked()
		h.Keeper.Sockets[i], h.Keeper.Complete[i] = fdOut(sock), complete
	}
	h.Procs = make([]handoverProc, 0, len(st.locked))
	for _, p := range st.locked {
		if k.procs[p.ref.Slot].Load() == p && p.started {
			at := handoverProc{Slot: int64(p.ref.Slot), Gen: int64(p.ref.Gen), Limit: p.limit, Policy: int64(p.policy), Deferred: p.deferred}
			at.FDs.put(p.holdings())
			for i := range p.out {
				if p.out[i].waiting {
					at.Streams[i] = streamWaits
				}
			}
			h.Procs = append(h.Procs, at)
		}
	}
	k.leaveOpen(h)
	return h
}
