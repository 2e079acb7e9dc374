//go:build linux

// Package stdin moves input from its memfd to the process. Both server and keeper do
// this: the server directly after it has written, so that input needs no switch to the
// keeper; the keeper when the pipe was full, and after the death of a server.
//
// Input waits in a memfd at the stream's own offsets; the board says how much of it is
// accepted. It is spliced from the memfd's file position to the pipe. The kernel
// advances the position by the moved bytes, and all roles hold the same open file, so
// input is delivered exactly once whichever role dies: no role has to remember its
// position. A terminal cannot be spliced to from a file, so a staging pipe, shared in
// the same way, stands between.
//
// One role feeds at a time: its pid is in the feeder word of the slot. After a role has
// cleared the word, it checks once more whether input was accepted meanwhile, so none
// is left behind. The keeper clears the word of a dead server.
package stdin

import (
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/process"
)

const (
	most      = 1 << 20   // bytes a splice
	stageMost = 64 << 10  // bytes the staging pipe holds
	punchStep = 2 << 20   // memory is freed in steps of this: a huge page of most machines
	wide      = 256 << 10 // bytes a pipe holds that was found full once
)

// Feed is one process's input. The descriptors are the caller's.
type Feed struct {
	Slot   board.Slot
	Mem    int // the memfd
	Out    int // writing end of the pipe, or the terminal's master
	StageR int // staging pipe, terminals only; else -1
	StageW int

	widened bool // tried to make the pipe hold more
}

// Result says why feeding stopped.
type Result int

const (
	Empty  Result = iota // everything accepted was delivered
	Full                 // the pipe is full; wait until it can be written
	Busy                 // another role is feeding
	Broken               // nobody reads any more
)

// Run delivers the accepted input, as far as there is room. owner is the caller's pid.
func (f *Feed) Run(owner int) Result {
	for {
		if !f.Slot.TakeFeeder(owner) {
			return Busy
		}
		r := f.deliver()
		f.Slot.DropFeeder(owner)
		if r != Empty || f.Slot.Base(process.Stdin) >= f.Slot.End(process.Stdin) {
			return r
		}
	}
}

// Recover clears the word of a role that died while it fed, and reports whether it did.
// owner is the caller's pid: it counts as the feeder until the board says how much was
// delivered; otherwise another role would continue from a wrong offset.
func (f *Feed) Recover(dead, owner int) bool {
	if !f.Slot.PassFeeder(dead, owner) {
		return false
	}
	// It may have died between moving bytes and saying so; the memfd's position says it.
	if pos, err := unix.Seek(f.Mem, 0, unix.SEEK_CUR); err == nil {
		f.Slot.SetBase(process.Stdin, pos)
	}
	f.Slot.DropFeeder(owner)
	return true
}

func (f *Feed) deliver() Result {
	start := f.Slot.Base(process.Stdin)
	defer func() { f.free(start, f.Slot.Base(process.Stdin)) }()
	for {
		if f.StageR >= 0 && staged(f.StageR) {
			if r := result(splice(f.StageR, f.Out, stageMost)); r != Empty {
				return r
			}
			continue
		}
		pos := f.Slot.Base(process.Stdin)
		left := f.Slot.End(process.Stdin) - pos
		if left <= 0 {
			return Empty
		}
		to, limit := f.Out, int64(most)
		if f.StageW >= 0 {
			to, limit = f.StageW, stageMost
		}
		n, err := splice(f.Mem, to, min(left, limit))
		if err == unix.EAGAIN && f.widen() {
			continue
		}
		if r := result(n, err); r != Empty {
			return r
		}
		failpoint.Hit(failpoint.Fed)
		f.Slot.SetBase(process.Stdin, pos+n)
	}
}

// Abandoned reports whether the input has no reader any more although the pipe is full:
// the next feeder would find out, but the caller needs to know now.
func (f *Feed) Abandoned() bool {
	fds := []unix.PollFd{{Fd: int32(f.Out)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// Delivered reports whether all input before end has left the memfd and the staging
// pipe. What then breaks has broken after it.
func (f *Feed) Delivered(end int64) bool {
	pos, err := unix.Seek(f.Mem, 0, unix.SEEK_CUR)
	return err == nil && pos >= end && (f.StageR < 0 || !staged(f.StageR))
}

// widen makes a full pipe hold more, once: what feeds a process much input then
// switches to it, and to the keeper, a quarter as often. It fails where the
// user's pipes hold too much already, and then all is as it was.
func (f *Feed) widen() bool {
	if f.widened || f.StageW >= 0 {
		return false
	}
	f.widened = true
	n, err := unix.FcntlInt(uintptr(f.Out), unix.F_SETPIPE_SZ, wide)
	return err == nil && n >= wide
}

func result(n int64, err error) Result {
	switch {
	case err == unix.EAGAIN:
		return Full
	case err != nil || n == 0: // EPIPE, or EIO of a terminal
		return Broken
	}
	return Empty
}

// free gives memory behind the delivered offset back. Pages that still lie in
// the pipe are not touched by it as long as they are freed whole: of a huge page
// (shmem_enabled in /sys/kernel/mm/transparent_hugepage) the kernel would zero a
// part in place, under a reader of the pipe.
func (f *Feed) free(from, to int64) {
	from, to = from&^(punchStep-1), to&^(punchStep-1)
	if to > from {
		_ = eintr.Do(func() error {
			return unix.Fallocate(f.Mem, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
		})
	}
}

func staged(pipe int) bool {
	n, _ := unix.IoctlGetInt(pipe, unix.TIOCINQ)
	return n > 0
}

func splice(src, dst int, n int64) (int64, error) {
	return eintr.Get(func() (int64, error) {
		return unix.Splice(src, nil, dst, nil, int(n), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	})
}
