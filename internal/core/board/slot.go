//go:build linux

package board

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tend-run/tend/process"
)

// Flags of a slot.
const (
	FlagUsed      = 1 << iota // the slot has an owner
	FlagStarted               // pid and start time are set
	FlagExited                // the exit fields are set
	FlagTreeGone              // no descendant is left
	FlagFinal                 // nothing will change any more; the keeper has forgotten the process
	FlagStdinOpen             // stdin takes more
	FlagNoSpace               // the keeper waits for space on the spool's filesystem
	FlagBlocked               // a stream is at its limit with policy block
	FlagFeedArmed             // the keeper waits for room in stdin and will deliver
	flagEOF                   // and the bits above it: EOF of streams 1..3 at flagEOF<<stream
)

// FlagStdinMem: input was written, so there is memory that holds it.
const FlagStdinMem = 1 << 16

// FlagSyncExit and FlagSyncInterval: when output is forced to the disk
// (process.Sync); neither: never.
const (
	FlagSyncExit     = 1 << 17
	FlagSyncInterval = 1 << 18
)

// FlagNoGroup: the process has no cgroup of its own, though others may.
const FlagNoGroup = 1 << 20 // 1 << 19 was used by former versions

// FlagTakenBack: the start is being undone. Its forked child may already be killed, so
// no keeper may complete it.
const FlagTakenBack = 1 << 21

// FlagStdinBroken: stdin ended because nobody reads it any more.
const FlagStdinBroken = 1 << 24

// FlagEOF returns the flag for the end of an output stream.
func FlagEOF(s process.Stream) uint32 { return uint32(flagEOF) << s }

// Forking in place of a pid: the process may exist, and its pid is not known.
const Forking = 1<<32 - 1

// StdinEOF in the stdin wishes: close stdin after the accepted bytes.
const StdinEOF = 1

// Slot is one process's place on the board.
type Slot struct {
	b   *Board
	off int
}

// Board is the one that the slot is on.
func (s Slot) Board() *Board { return s.b }

// Gen counts the owners the slot has had.
func (s Slot) Gen() uint32 { return atomic.LoadUint32(s.b.u32(s.off)) }

// Flags returns the Flag* bits.
func (s Slot) Flags() uint32 { return atomic.LoadUint32(s.b.u32(s.off + 4)) }

// Set sets flags, and Clear clears them.
func (s Slot) Set(f uint32)   { atomic.OrUint32(s.b.u32(s.off+4), f) }
func (s Slot) Clear(f uint32) { atomic.AndUint32(s.b.u32(s.off+4), ^f) }

// Reserve gives the slot to a new owner, with a new gen.
func (s Slot) Reserve(id process.ID) (gen uint32) {
	s.use()
	atomic.StoreUint32(s.b.u32(s.off+4), 0)
	clear(s.b.mem[s.off+8 : s.off+slotSize])
	s.b.mem[s.off+12] = byte(copy(s.b.mem[s.off+16:s.off+16+process.MaxIDLen], id))
	gen = atomic.AddUint32(s.b.u32(s.off), 1)
	s.Set(FlagUsed)
	return gen
}

// use makes the slot one of those that were ever used.
func (s Slot) use() {
	if i := uint32(s.off-headerSize)/slotSize + 1; i > s.b.Used() {
		atomic.StoreUint32(s.b.u32(20), i)
	}
}

// Release ends the ownership.
func (s Slot) Release() {
	atomic.StoreUint32(s.b.u32(s.off+4), 0)
	atomic.AddUint32(s.b.u32(s.off), 1)
}

// ID of the owner.
func (s Slot) ID() process.ID {
	n := min(int(s.b.mem[s.off+12]), process.MaxIDLen)
	return process.ID(s.b.mem[s.off+16 : s.off+16+n])
}

// PID of the process.
func (s Slot) PID() int { return int(atomic.LoadUint32(s.b.u32(s.off + 8))) }

// NotePID writes down the pid of a process whose start is not announced yet:
// for a keeper that takes over in the middle of it.
// Forking stands for it from just before the fork.
func (s Slot) NotePID(pid int) { atomic.StoreUint32(s.b.u32(s.off+8), uint32(pid)) }

// PIDAt is where [Slot.PID] lies in memory, for the kernel to write it there at the
// fork.
func (s Slot) PIDAt() *uint32 { return s.b.u32(s.off + 8) }

// SessionAt is where the number of the session lies in memory, for the kernel to write it there
// before it makes the process. Session returns it; 0: the process leads its session, or
// there is none yet.
func (s Slot) SessionAt() *uint32 { return s.b.u32(s.off + 116) }
func (s Slot) Session() int       { return int(atomic.LoadUint32(s.SessionAt())) }

// NoteSession sets it on a board that is made again.
func (s Slot) NoteSession(n int) { atomic.StoreUint32(s.SessionAt(), uint32(n)) }

// DigitsAt is where a child inside of a sandbox writes its pid; only before the exit.
func (s Slot) DigitsAt() unsafe.Pointer { return unsafe.Pointer(s.b.u32(s.off + 220)) }

// InnerAt is where the pid inside of a sandbox lies until the exit, for the kernel to
// write it there at the fork. Inner returns it; 0: it is in none.
func (s Slot) InnerAt() *uint32 { return s.b.u32(s.off + 216) }
func (s Slot) Inner() uint32    { return atomic.LoadUint32(s.InnerAt()) }

// FailedAt is where a child that was forked writes 1 before it ends without having come
// to its program, and Failed reports that one did. Both only before the exit.
func (s Slot) FailedAt() *uint32 { return s.b.u32(s.off + 200) }
func (s Slot) Failed() bool {
	return s.Flags()&FlagExited == 0 && atomic.LoadUint32(s.FailedAt()) == 1
}

// SetStarted announces the pid and the time of the start.
func (s Slot) SetStarted(pid int, at time.Time) {
	atomic.StoreUint32(s.b.u32(s.off+8), uint32(pid))
	atomic.StoreUint64(s.b.u64(s.off+192), uint64(at.UnixNano()))
	s.Set(FlagStarted)
}

// Started returns the time of the start.
func (s Slot) Started() time.Time {
	return time.Unix(0, int64(atomic.LoadUint64(s.b.u64(s.off+192))))
}

// End and Base of a stream; for stdin, the bytes accepted and delivered.
func (s Slot) End(st process.Stream) int64 {
	return int64(atomic.LoadUint64(s.b.u64(s.off + 120 + int(st)*8)))
}
func (s Slot) SetEnd(st process.Stream, v int64) {
	atomic.StoreUint64(s.b.u64(s.off+120+int(st)*8), uint64(v))
}
func (s Slot) Base(st process.Stream) int64 {
	return int64(atomic.LoadUint64(s.b.u64(s.off + 152 + int(st)*8)))
}
func (s Slot) SetBase(st process.Stream, v int64) {
	atomic.StoreUint64(s.b.u64(s.off+152+int(st)*8), uint64(v))
}

// NoteReserved records when the slot was reserved, on a clock that is never set: the
// process started later.
func (s Slot) NoteReserved(bootNS int64) { atomic.StoreUint64(s.b.u64(s.off+208), uint64(bootNS)) }

// Reserved returns that time until the exit; afterwards, and if it was not recorded, 0.
func (s Slot) Reserved() (bootNS int64) {
	at := int64(atomic.LoadUint64(s.b.u64(s.off + 208)))
	if s.Flags()&FlagExited != 0 {
		return 0
	}
	return at
}

// IndexEnd is the length of the index file.
func (s Slot) IndexEnd() int64     { return int64(atomic.LoadUint64(s.b.u64(s.off + 184))) }
func (s Slot) SetIndexEnd(v int64) { atomic.StoreUint64(s.b.u64(s.off+184), uint64(v)) }

// NoteCause writes down, before the signal is sent, why the keeper ends a
// process: the next keeper may be the one that sees the exit.
func (s Slot) NoteCause(c process.Cause, sig int) {
	s.b.mem[s.off+204], s.b.mem[s.off+205] = byte(sig), byte(c)+1
}

// NotedCause returns it; ok is false if there is none.
func (s Slot) NotedCause() (c process.Cause, sig int, ok bool) {
	if s.b.mem[s.off+205] == 0 {
		return 0, 0, false
	}
	return process.Cause(s.b.mem[s.off+205] - 1), int(s.b.mem[s.off+204]), true
}

// SetExit announces the exit.
func (s Slot) SetExit(e *process.Exit) {
	*s.b.u32(s.off + 200) = uint32(int32(e.Code))
	s.b.mem[s.off+204] = byte(e.Signal)
	s.b.mem[s.off+206] = byte(e.Cause)
	s.b.mem[s.off+207] = 0
	if e.CoreDumped {
		s.b.mem[s.off+207] = 1
	}
	*s.b.u64(s.off + 208) = uint64(e.Time.UnixNano())
	*s.b.u64(s.off + 216) = uint64(e.UserTime)
	*s.b.u64(s.off + 224) = uint64(e.SystemTime)
	*s.b.u64(s.off + 232) = uint64(e.MaxRSS)
	s.Set(FlagExited)
}

// Exit returns the exit, or nil before it.
func (s Slot) Exit() *process.Exit {
	if s.Flags()&FlagExited == 0 {
		return nil
	}
	return &process.Exit{
		Code:       int(int32(*s.b.u32(s.off + 200))),
		Signal:     int(s.b.mem[s.off+204]),
		Cause:      process.Cause(s.b.mem[s.off+206]),
		CoreDumped: s.b.mem[s.off+207] == 1,
		Time:       time.Unix(0, int64(*s.b.u64(s.off + 208))),
		UserTime:   time.Duration(*s.b.u64(s.off + 216)),
		SystemTime: time.Duration(*s.b.u64(s.off + 224)),
		MaxRSS:     int64(*s.b.u64(s.off + 232)),
	}
}

// Wishes are the server's: StdinEOF.
func (s Slot) Wishes() uint32     { return atomic.LoadUint32(s.b.u32(s.off + 240)) }
func (s Slot) SetWishes(v uint32) { atomic.OrUint32(s.b.u32(s.off+240), v) }

// TakeFeeder makes owner (a pid) the one that feeds stdin, unless another role
// does.
func (s Slot) TakeFeeder(owner int) bool {
	return atomic.CompareAndSwapUint32(s.b.u32(s.off+244), 0, uint32(owner))
}

// DropFeeder lets go.
func (s Slot) DropFeeder(owner int) {
	atomic.CompareAndSwapUint32(s.b.u32(s.off+244), uint32(owner), 0)
}

// PassFeeder makes owner the one that feeds in place of a role that died while
// it did, and reports whether that was so.
func (s Slot) PassFeeder(dead, owner int) bool {
	return dead > 0 && atomic.CompareAndSwapUint32(s.b.u32(s.off+244), uint32(dead), uint32(owner))
}

// Feeder is the pid of the role that feeds, or 0.
func (s Slot) Feeder() int { return int(atomic.LoadUint32(s.b.u32(s.off + 244))) }

// SetDeadline records the time of the process's timeout, on a clock that is never set,
// and what it kills.
func (s Slot) SetDeadline(bootNS int64, scope process.Scope) {
	atomic.StoreUint64(s.b.u64(s.off+248), uint64(bootNS)&^3|uint64(scope)&3)
}

// Deadline returns the timeout; ok is false if none was noted.
func (s Slot) Deadline() (bootNS int64, scope process.Scope, ok bool) {
	v := atomic.LoadUint64(s.b.u64(s.off + 248))
	return int64(v &^ 3), process.Scope(v & 3), v != 0
}
