//go:build linux

package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/lib/unixsock"
)

// hold makes this process the keeper of the state directory. The lock is of a table of
// descriptors, and children that have not come to their programs share the table of their
// keeper. So the lock of a dead keeper is free in a moment, unless one of them was
// stopped: a program in a sandbox can do that. Those are killed, and their starts undone.
func (k *Keeper) hold() error {
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		var held *rundir.HeldError
		var err error
		if k.lock, err = k.run.Hold("keeper"); !errors.As(err, &held) {
			return err
		}
		switch waited := time.Since(begun); {
		case procfs.Runs(held.PID), waited > holdWait:
			return err
		case waited > forkedWait:
			k.killUnborn()
		}
	}
}

// late reports whether the anchor that started us has ended. A new anchor looks for the
// holder of the lock, and starts a keeper if there is none. So a keeper that gets the
// lock later is unexpected, and may run after the end of the whole daemon. A keeper
// whose anchor ends after that is found by the next anchor.
func (k *Keeper) late() bool {
	if k.cfg.Vault < 0 {
		return false
	}
	who, _, _ := unixsock.Peer(k.cfg.Vault) // made our end of the pair, too
	return who > 0 && who != os.Getppid()
}

// holdWait bounds how long the lock of a dead keeper is waited for.
const holdWait = 10 * time.Second

// killUnborn kills the children that share the table of descriptors in which the lock is.
func (k *Keeper) killUnborn() {
	lock, err := os.Stat(k.run.Path("keeper.lock"))
	if err != nil {
		return
	}
	pids, _ := procfs.PIDs()
	for _, pid := range pids {
		pidfd.Signal(pid, unix.SIGKILL, func() bool {
			stat, ok := procfs.ReadStat(pid)
			if !ok || !stat.NoExec || stat.Dead() || pid == os.Getpid() || !hasOpen(pid, lock) {
				return false
			}
			k.logf("pid %d is killed: it is a start of a keeper that died, and does not come to its program", pid)
			k.unborn[pid] = true
			return true
		})
	}
}

func hasOpen(pid int, file os.FileInfo) bool {
	dir := procfs.Path(pid, "fd")
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		if is, err := os.Stat(filepath.Join(dir, name)); err == nil && os.SameFile(is, file) {
			return true
		}
	}
	return false
}
