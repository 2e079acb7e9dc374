//go:build linux

package keeper

import (
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/keeper/board"
)

// Whoever can write to the board is known for as long as they can, and an open is
// told. Those who were given the descriptor do not count.
func TestWhoHasTheBoardOpenIsKnown(t *testing.T) {
	b := scene.Value(board.Create())(t)
	defer b.Close()
	path := "/proc/self/fd/" + strconv.Itoa(b.FD())
	inotify := scene.Value(unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK))(t)
	defer unix.Close(inotify)
	scene.Must(t, proveOpens(inotify, path))
	want := func(when string, told, elsewhere bool) {
		t.Helper()
		if got := drain(inotify); got != told {
			t.Errorf("%s: an open was told: %v", when, got)
		}
		if got := openElsewhere(b.FD()); got != elsewhere {
			t.Errorf("%s: open elsewhere: %v", when, got)
		}
	}
	want("made", false, false)
	given := scene.Value(unix.Dup(b.FD()))(t)
	defer unix.Close(given)
	want("given away", false, false)
	fd := scene.Value(unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0))(t)
	want("opened to be read", true, false)
	unix.Close(fd)
	fd = scene.Value(unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0))(t)
	want("opened", true, true)
	mem := scene.Value(unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	unix.Close(fd)
	want("mapped", false, true)
	scene.Must(t, unix.Munmap(mem))
	want("left alone", false, false)
}

// What stirs ends a long wait soon, and an open at once.
func TestTheBoardIsLookedAtAfterWhatHappens(t *testing.T) {
	w := newBoardWatch()
	w.stir()
	w.stir()
	if w.wait(time.Hour) {
		t.Error("it was opened")
	}
	nudge(w.opened)
	if !w.wait(time.Hour) {
		t.Error("it was not opened")
	}
	if w.wait(time.Millisecond) {
		t.Error("it was opened again")
	}
}
