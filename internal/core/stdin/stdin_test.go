//go:build linux

package stdin

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// input is a process's input with nobody in particular as the process.
func input(t *testing.T) (f *Feed, out *os.File) {
	t.Helper()
	b, err := board.Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	s := b.Slot(0)
	s.Reserve("test")
	mem, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(mem); r.Close(); w.Close() })
	return &Feed{Slot: s, Mem: mem, Out: int(w.Fd()), StageR: -1, StageW: -1}, r
}

// accept is what a server does with input.
func accept(t *testing.T, f *Feed, data string) {
	t.Helper()
	at := f.Slot.End(process.Stdin)
	if _, err := unix.Pwrite(f.Mem, []byte(data), at); err != nil {
		t.Fatal(err)
	}
	f.Slot.SetEnd(process.Stdin, at+int64(len(data)))
}

func got(t *testing.T, out *os.File, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := out.Read(b); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimRight(b, "\x00"))
}

const me, other = 100, 200

// A role died after bytes had moved and before the board said so.
func die(t *testing.T, f *Feed, n int) {
	t.Helper()
	if !f.Slot.TakeFeeder(other) {
		t.Fatal("somebody feeds")
	}
	if _, err := splice(f.Mem, f.Out, int64(n)); err != nil {
		t.Fatal(err)
	}
}

func TestInputThatADeadRoleMovedIsNotMovedAgain(t *testing.T) {
	f, out := input(t)
	accept(t, f, "one")
	die(t, f, 3)
	if r := f.Run(me); r != Busy {
		t.Fatalf("while another role feeds: %v", r)
	}
	if f.Recover(other+1, me) {
		t.Fatal("recovered from a role that did not feed")
	}
	if !f.Recover(other, me) || f.Slot.Feeder() != 0 || f.Slot.Base(process.Stdin) != 3 {
		t.Fatalf("not recovered: feeder %d, delivered %d", f.Slot.Feeder(), f.Slot.Base(process.Stdin))
	}
	accept(t, f, "two")
	if r := f.Run(me); r != Empty {
		t.Fatalf("the next input: %v", r)
	}
	if text := got(t, out, 100); text != "onetwo" {
		t.Errorf("the process reads %q", text)
	}
}

// Whoever looks for dead feeders must not write what it saw before another
// role has delivered more: the offset would fall behind the file's position,
// and the next feeder find nothing there and take the pipe for broken.
func TestRecoveryLeavesAFeedAloneThatNobodyDiedIn(t *testing.T) {
	f, out := input(t)
	accept(t, f, "one")
	if r := f.Run(other); r != Empty {
		t.Fatal(r)
	}
	if f.Recover(0, me) {
		t.Error("recovered though nobody fed")
	}
	accept(t, f, "two")
	if r := f.Run(other); r != Empty {
		t.Fatal(r)
	}
	if text := got(t, out, 100); text != "onetwo" || f.Slot.Base(process.Stdin) != 6 {
		t.Errorf("the process reads %q; delivered %d", text, f.Slot.Base(process.Stdin))
	}
}

func TestAFullPipeIsMadeToHoldMoreOnce(t *testing.T) {
	f, out := input(t)
	accept(t, f, string(bytes.Repeat([]byte("x"), 1<<20)))
	if r := f.Run(me); r != Full {
		t.Fatal(r)
	}
	first := f.Slot.Base(process.Stdin)
	if first < wide/2 {
		t.Errorf("the pipe took %d bytes", first)
	}
	if n := len(got(t, out, 1<<20)); int64(n) != first {
		t.Errorf("%d bytes came of %d", n, first)
	}
	for f.Slot.Base(process.Stdin) < 1<<20 {
		if r := f.Run(me); r != Full && r != Empty {
			t.Fatal(r)
		}
		got(t, out, 1<<20)
	}
}

func TestNobodyReads(t *testing.T) {
	f, out := input(t)
	out.Close()
	accept(t, f, "one")
	if r := f.Run(me); r != Broken {
		t.Errorf("%v; want Broken", r)
	}
}

// Where memory comes in huge pages, the kernel zeroes the part of one that is
// freed, also under the pipe that the page was spliced to. Only whole ones may go.
func TestMemoryIsFreedInWholeHugePages(t *testing.T) {
	f, _ := input(t)
	const huge = 2 << 20
	proctest.Must(t, unix.Ftruncate(f.Mem, 3*huge))
	for at := int64(0); at < 3*huge; at += huge / 2 { // what is no page has nothing to free
		if _, err := unix.Pwrite(f.Mem, bytes.Repeat([]byte{'x'}, huge/2), at); err != nil {
			t.Fatal(err)
		}
	}
	for _, free := range []struct{ from, to, left int64 }{
		{0, huge - 1, 0},
		{0, huge + huge/2, huge},
		{huge + huge/2, 2*huge + huge/2, 2 * huge},
	} {
		f.free(free.from, free.to)
		if at, err := unix.Seek(f.Mem, 0, unix.SEEK_DATA); err != nil || at != free.left {
			t.Errorf("delivered %d to %d: memory begins at %d (%v), want %d", free.from, free.to, at, err, free.left)
		}
	}
}

// A program may end by the last that it reads, before the board says that it was fed.
func TestWhatWasDeliveredIsNotBroken(t *testing.T) {
	f, out := input(t)
	accept(t, f, "all of it")
	if f.Delivered(9) {
		t.Error("what nobody moved is delivered")
	}
	die(t, f, 9)
	got(t, out, 9)
	out.Close()
	if !f.Abandoned() || !f.Delivered(9) || f.Delivered(10) {
		t.Errorf("abandoned: %v, delivered: %v, and one more: %v", f.Abandoned(), f.Delivered(9), f.Delivered(10))
	}
	var stage [2]int
	proctest.Must(t, unix.Pipe2(stage[:], unix.O_CLOEXEC))
	t.Cleanup(func() { unix.Close(stage[0]); unix.Close(stage[1]) })
	f.StageR, f.StageW = stage[0], stage[1]
	proctest.Value(unix.Write(f.StageW, []byte("x")))(t)
	if f.Delivered(9) {
		t.Error("what is in the staging pipe is delivered")
	}
}
