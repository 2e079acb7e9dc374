//go:build linux

package keeper

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/dirpool"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/suspendaware"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// completeStart completes a start that the death of the previous keeper interrupted, if
// the program was forked: it runs, or has run, and must not run again when the server
// repeats its request. False: nothing ran, or it is unknown what ran.
func (k *Keeper) completeStart(p *proc, h fdstore.FDs) bool {
	pid := p.slot.PID()
	if pid == 0 || p.slot.Flags()&board.FlagTakenBack != 0 {
		return false // not forked, or ended since by a keeper that died meanwhile
	}
	dir, j := k.findSpec(p.id)
	if j == nil {
		return false // what has no spec has not been forked
	}
	if pid == board.Forking {
		pid = p.awaitFork()
	}
	if pid == 0 || k.unborn[pid] || !p.executes(pid) {
		return false
	}
	failpoint.Hit(failpoint.HalfStartFound)
	if dir != p.dir {
		if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, p.dir, unix.RENAME_NOREPLACE); err != nil {
			k.logf("process %s: its start cannot be completed: %v", p.id, err)
			return false
		}
	}
	k.logf("process %s: completing the start of pid %d", p.id, pid)
	p.inner = p.slot.Inner()
	if j.Started == nil {
		k.record(p, p.appendStart(nil, j.SpecTime, pid))
	}
	if _, ok := h[wire.FDStdin]; ok || j.Spec.PTY != nil {
		p.slot.Set(board.FlagStdinOpen)
	}
	p.slot.SetStarted(pid, j.SpecTime)
	return true
}

// awaitFork waits for the pid of the process that a stub is about to make, or has made; 0: it
// makes none.
func (p *proc) awaitFork() int {
	known := func() (pid int, made bool) {
		if pid := p.slot.PID(); pid != board.Forking {
			return pid, true
		}
		return p.digits().Number(), p.slot.Inner() != 0
	}
	for g := suspendaware.New(forkedWait); ; time.Sleep(time.Millisecond) {
		stub, stubOK := procfs.ReadStat(p.slot.Session())
		pid, made := known()
		switch {
		case pid != 0:
			return pid
		case p.slot.Failed(), g.Over():
			return 0
		case !made && (!stubOK || stub.Dead() || !stub.NoExec):
			return 0
		}
	}
}

// executes waits until the child of a script has come to its program, and is false if
// it ended before.
func (p *proc) executes(pid int) bool {
	for g := suspendaware.New(forkedWait); ; time.Sleep(time.Millisecond) {
		stat, ok := procfs.ReadStat(pid)
		if ok && !stat.Dead() && stat.NoExec && !g.Over() {
			continue
		}
		return !p.slot.Failed() // which it writes before it ends
	}
}

// forkedWait bounds how long a process is looked for that has just been forked
// and is not the leader of its session yet, or has not executed its program.
const forkedWait = time.Second

// findSpec looks for the directory with the spec of a process: under its own
// name, or still among the spare ones.
func (k *Keeper) findSpec(id process.ID) (string, *spool.Journal) {
	dirs := []string{filepath.Join(k.spool, string(id))}
	for _, dir := range append(dirs, dirpool.Dirs(k.spool)...) {
		if j, err := spool.ReadJournal(dir); err == nil && j.Spec.ID == id {
			return dir, j
		}
	}
	return "", nil
}

// undoWait is what the kernel gets to end the processes of such a start.
const undoWait = time.Second

// undoStart cleans up after a start that was never announced: the caller was
// not answered that it worked, and will repeat it.
func (k *Keeper) undoStart(p *proc, h fdstore.FDs) {
	k.logf("process %s: taking back a start that did not come to the program", p.id)
	p.slot.Set(board.FlagTakenBack)
	if fd, ok := h[wire.FDPid]; ok {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	k.groups.Kill(p.ref.Slot)
	for g := suspendaware.New(undoWait); !g.Over() && !k.groups.WaitEmpty(p.ref.Slot, time.Now().Add(undoWait/100)); {
	}
	k.groups.Unlimit(p.ref.Slot, p.ref.Gen)
	failpoint.Hit(failpoint.UndoKilled)
	if j, err := spool.ReadJournal(p.dir); err != nil || j.Exit == nil && (j.Started == nil || j.Place != nil &&
		*j.Place == spool.Place(p.ref)) {
		os.RemoveAll(p.dir) // else it is of another process with this id
	}
	p.vaulted = fdstore.Epochs{1, 1}
	k.vaults.Drop(&p.vaulted, p.ref)
}
