//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A program that writes to the board from outside must first open it, by its name in
// /proc. inotify(7) reports the open. A lease of fcntl(2) is refused while another
// program has the board open for writing. So the keeper checks the board at once when
// somebody opens it, and then every second while others may write to it, because the
// kernel does not report writes through a mapping. It also checks a second after any
// event, which finds damage by the roles themselves. While nothing happens, nothing
// acts on the board, and the keeper sleeps.
const (
	// checkEvery is the time between two looks at a board that others have open, and
	// from the first event after a look to the next look.
	checkEvery = time.Second
	// checkSeldom is the most time between two looks.
	checkSeldom = 10 * time.Minute
)

// boardWatch says when the board is to be looked at.
type boardWatch struct {
	inotify int
	opened  chan struct{} // has one when somebody has opened the board
	stirred chan struct{} // has one when something has happened since the last look
	told    atomic.Bool   // that something has
}

func newBoardWatch() boardWatch {
	return boardWatch{inotify: -1, opened: make(chan struct{}, 1), stirred: make(chan struct{}, 1)}
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
	err := k.watchOpens()
	if err != nil {
		k.logf("the board is looked at each second, because nothing tells when it is opened: %v", err)
	}
	for opened := false; ; {
		every := checkEvery
		if err == nil && !opened && k.boardIsOurs() {
			every = checkSeldom
		}
		k.boards.told.Store(false)
		k.verifyBoard()
		opened = k.boards.wait(every)
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

// watchOpens notifies a worker when somebody opens the board. It opens the board once
// to check that the kernel reports it; if not, or if the user already has all allowed
// inotify instances, it returns the reason.
func (k *Keeper) watchOpens() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	if err := proveOpens(fd, "/proc/self/fd/"+strconv.Itoa(k.board.FD())); err != nil {
		unix.Close(fd)
		return err
	}
	k.boards.inotify = fd
	if err := k.armBoard(unix.EPOLL_CTL_ADD); err != nil {
		unix.Close(fd)
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// proveOpens watches a file, and checks that an open of it is reported.
func proveOpens(inotify int, path string) error {
	if _, err := unix.InotifyAddWatch(inotify, path, unix.IN_OPEN); err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open of the board: %w", err)
	}
	unix.Close(fd)
	if !drain(inotify) {
		return errors.New("this kernel's inotify says nothing of files in memory")
	}
	return nil
}

// drain reads all inotify events, and reports whether there were any.
func drain(inotify int) bool {
	var events [64 * unix.SizeofInotifyEvent]byte
	n, err := unix.Read(inotify, events[:])
	return err == nil && n > 0
}

func (k *Keeper) armBoard(op int) error {
	return unix.EpollCtl(k.ep, op, k.boards.inotify, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: onBoard})
}

// boardIsOurs reports whether no other program can write to the board, and enables the
// notification of the next open. It is called a second after an open, so that many
// opens cost little.
func (k *Keeper) boardIsOurs() bool {
	drain(k.boards.inotify) // what is opened from here on is told
	return k.armBoard(unix.EPOLL_CTL_MOD) == nil && !openElsewhere(k.board.FD())
}

// openElsewhere reports whether another program may have opened a memory file for
// writing; it can write as long as it has the file open or mapped. The creator, and
// programs that got its descriptor, do not count, because the kernel did not grant them
// write access to the inode. On kernels that did, the answer is always true.
func openElsewhere(fd int) bool {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return true
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return err != nil
}
