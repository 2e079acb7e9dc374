//go:build linux

package keeper

import (
	"os/signal"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/support/proctest"
)

// Whoever can write to the board is known for as long as they can, and an open for
// writing is signalled, and waits. Those who were given the descriptor do not count.
func TestWhoHasTheBoardOpenIsKnown(t *testing.T) {
	b := proctest.Value(board.Create())(t)
	defer b.Close()
	path := "/proc/self/fd/" + strconv.Itoa(b.FD())
	w := newBoardWatch()
	proctest.Must(t, w.watch(b.FD()))
	defer signal.Stop(w.opened)
	defer unix.Close(w.lease)
	want := func(when string, ours bool) {
		t.Helper()
		if err := w.takeLease(); (err == nil) != ours {
			t.Errorf("%s: the lease: %v", when, err)
		}
	}
	want("made", true)
	given := proctest.Value(unix.Dup(b.FD()))(t)
	defer unix.Close(given)
	want("given away", true)
	fd := proctest.Value(unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0))(t)
	want("opened to be read", true)
	unix.Close(fd)
	if _, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != unix.EAGAIN {
		t.Errorf("an open that does not wait: %v", err)
	}
	<-w.opened
	want("not opened", true)
	// The open in the other goroutine ends only once the lease is released.
	opening := make(chan int)
	go func() {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Errorf("open: %v", err)
		}
		opening <- fd
	}()
	<-w.opened
	w.release()
	fd = <-opening
	want("opened", false)
	mem := proctest.Value(unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	unix.Close(fd)
	want("mapped", false)
	proctest.Must(t, unix.Munmap(mem))
	want("left alone", true)
}

// What stirs ends a long wait soon, and an open at once.
func TestTheBoardIsLookedAtAfterWhatHappens(t *testing.T) {
	w := newBoardWatch()
	w.stir()
	w.stir()
	if w.wait(time.Hour) {
		t.Error("it was opened")
	}
	w.opened <- onOpen
	if !w.wait(time.Hour) {
		t.Error("it was not opened")
	}
	if w.wait(time.Millisecond) {
		t.Error("it was opened again")
	}
}
