//go:build linux

package keeper

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A program that writes to the board from outside must first open it for writing, by
// its name in /proc. The keeper holds a read lease on the board (F_SETLEASE of fcntl(2)).
// The kernel refuses the lease while another program can write to the board, and breaks
// it when one opens the board for writing: it signals the keeper, and the open waits
// until the keeper has released the lease. So the keeper checks the board at once when
// somebody opens it, and then every second while others may write to it, because the
// kernel does not report writes through a mapping. It also checks a second after any
// event, which finds damage by the roles themselves. While nothing happens, nothing
// acts on the board, and the keeper sleeps.
//
// inotify(7) would report opens, too. But a process that has an inotify instance takes
// several milliseconds longer to end, and to execute another program: the kernel waits
// for all readers of its list of watches. A keeper is replaced in less time than that.
const (
	// checkEvery is the time between two looks at a board that others have open, and
	// from the first event after a look to the next look.
	checkEvery = time.Second
	// checkSeldom is the most time between two looks.
	checkSeldom = 10 * time.Minute
)

// boardWatch says when the board is to be looked at.
type boardWatch struct {
	lease   int            // the board, opened for the lease alone
	opened  chan os.Signal // has one when somebody opens the board for writing
	stirred chan struct{}  // has one when something has happened since the last look
	told    atomic.Bool    // that something has
}

func newBoardWatch() boardWatch {
	return boardWatch{lease: -1, opened: make(chan os.Signal, 1), stirred: make(chan struct{}, 1)}
}

// stir notes that something happens. It costs one load when that is known.
func (w *boardWatch) stir() {
	if !w.told.Load() && !w.told.Swap(true) {
		nudge(w.stirred)
	}
}

// nudge leaves one value in a channel that has room for one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watchBoard ends the keeper when the board is damaged.
func (k *Keeper) watchBoard() {
	w := &k.boards
	if err := w.watch(k.board.FD()); err != nil {
		k.logf("the board is checked each second, because no lease on it can be had: %v", err)
	}
	for opened := false; ; {
		every := checkEvery
		switch {
		case opened: // the lease is taken again a second after an open, so that many opens cost little
			w.release()
		case w.takeLease() == nil:
			every = checkSeldom
		}
		w.told.Store(false)
		k.verifyBoard()
		opened = w.wait(every)
	}
}

// wait returns when the board is to be looked at, after a time at the latest, and
// whether that is because somebody opened it.
func (w *boardWatch) wait(most time.Duration) (opened bool) {
	look := time.NewTimer(most)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			return false
		case <-w.opened:
			return true
		case <-w.stirred:
			if most > checkEvery {
				look.Reset(checkEvery)
			}
		}
	}
}

// onOpen is the signal that somebody opens the board. Its default is to do nothing: one
// that waits while the keeper executes another program does not end that.
const onOpen = unix.SIGWINCH

// watch prepares the lease on a memory file, and takes it for a moment, to check that the
// kernel has leases.
func (w *boardWatch) watch(file int) error {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(file), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	w.lease = fd
	signal.Notify(w.opened, onOpen)
	if err := w.takeLease(); err != nil && err != unix.EAGAIN {
		return fmt.Errorf("fcntl: %w", err)
	}
	return nil
}

// takeLease takes the lease. The error is EAGAIN if another program can write to the board. The
// creator, and programs that got its descriptor, do not count, because the kernel did not
// grant them write access to the inode. On kernels that did, it is always EAGAIN.
func (w *boardWatch) takeLease() error {
	w.release() // one that is being broken cannot be taken again
	// The kernel forgets both with the lease. Without an owner it would signal the thread
	// that happens to ask.
	for _, set := range [][2]int{{unix.F_SETOWN, os.Getpid()}, {unix.F_SETSIG, int(onOpen)}, {unix.F_SETLEASE, unix.F_RDLCK}} {
		if _, err := unix.FcntlInt(uintptr(w.lease), set[0], set[1]); err != nil {
			return err
		}
	}
	return nil
}

// release lets the open of another program go on.
func (w *boardWatch) release() {
	_, _ = unix.FcntlInt(uintptr(w.lease), unix.F_SETLEASE, unix.F_UNLCK)
}
