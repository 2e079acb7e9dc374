//go:build linux

// Package board is the shared memory through which the keeper tells the server
// how far each live process has come. It is a memfd that the anchor keeps, so
// it survives the death of either.
//
// # Why
//
// The keeper must never wait for the server. A store to shared memory cannot
// block, coalesces by itself, costs no system call, and is still there when a
// server that was killed comes back: it maps the board and knows everything.
//
// # Layout (version 1; little-endian words in native order, 64-byte aligned)
//
//	offset  size  what
//	0       8     magic "tendBRD1"
//	8       4     version
//	12      4     number of slots
//	16      4     armed: the server sets 1 before it sleeps; the keeper swaps
//	              in 0 and, if it was 1, writes the wake eventfd
//	20      4     slots ever used: the ones from here on are untouched memory
//	64      2048  dirty: one bit a slot, set by the keeper, taken by the server
//	4096    256*n slots
//
// A slot belongs to one process from before its directory is made until the
// server has retired it. gen counts its owners: a reader that copies a slot
// compares gen before and after.
//
//	offset  size  what                                         written by
//	0       4     gen                                          keeper
//	4       4     flags (Flag*)                                keeper
//	8       4     pid                                          keeper
//	12      1     length of the id                             keeper
//	16      104   id                                           keeper
//	120     32    end[4]: bytes in the spool by stream;        keeper
//	              end[0]: bytes of stdin accepted              server
//	152     32    base[4]: oldest byte kept by stream;         keeper
//	              base[0]: bytes of stdin delivered            feeder
//	184     8     end of the index file                        keeper
//	192     8     start, unix ns                               keeper
//	200     4     exit code                                    keeper
//	204     1     exit signal                                  keeper
//	205     1     before the exit: 1 more than the cause of    keeper
//	              the death that the keeper is bringing about
//	              by the signal at 204; 0: none
//	206     1     exit cause                                   keeper
//	207     1     1: core dumped                               keeper
//	208     8     exit time, unix ns; before the exit: when     keeper
//	              the slot was reserved, CLOCK_BOOTTIME ns
//	216     8     user time, ns                                keeper
//	224     8     system time, ns                              keeper
//	232     8     max rss, bytes                               keeper
//	240     4     stdin wishes (StdinEOF)                      server
//	244     4     feeder: pid of the role that feeds stdin     both
//	248     8     timeout: CLOCK_BOOTTIME ns, lowest two bits  keeper
//	              what it kills; 0: none, or see the journal
//
// Fields are stored before the flag that announces them, and all words that
// change are accessed atomically.
package board

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/memory"
	"github.com/tend-run/tend/process"
)

// Slots is the number of processes that can be live, or finished and not yet
// retired, at once.
const Slots = 16384

const (
	version    = 1
	headerSize = 4096
	slotSize   = 256
	dirtyOff   = 64
	size       = headerSize + Slots*slotSize
)

var magic = [8]byte{'t', 'e', 'n', 'd', 'B', 'R', 'D', '1'}

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

// FlagTakenBack: the start is being undone. What was forked for it may be killed
// already, so no keeper may complete it.
const FlagTakenBack = 1 << 21

// FlagStdinBroken: stdin ended because nobody reads it any more.
const FlagStdinBroken = 1 << 24

// FlagEOF returns the flag for the end of an output stream.
func FlagEOF(s process.Stream) uint32 { return uint32(flagEOF) << s }

// Forking in place of a pid: the process may exist, and its pid is not known.
const Forking = 1<<32 - 1

// StdinEOF in the stdin wishes: close stdin after the accepted bytes.
const StdinEOF = 1

// Board is a mapped board. It is safe for concurrent use by one keeper and one
// server.
type Board struct {
	mem []byte
	fd  int
}

// Create makes a fresh board in a memfd.
func Create() (*Board, error) {
	fd, err := memory.Create("tend-board", 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("board size: %w", err)
	}
	memory.Seal(fd, memory.FixedSize) // one that is cut short would end keeper and server
	b, err := mapFD(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	copy(b.mem, magic[:])
	*b.u32(8) = version
	*b.u32(12) = Slots
	return b, nil
}

// Open maps an existing board; it takes the descriptor over.
func Open(fd int) (*Board, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("board: %w", err)
	}
	if st.Size != size {
		return nil, fmt.Errorf("board has %d bytes where this version has %d", st.Size, size)
	}
	b, err := mapFD(fd)
	if err != nil {
		return nil, err
	}
	if !b.Intact() {
		unix.Munmap(b.mem)
		return nil, errors.New("board has another header than this version's")
	}
	return b, nil
}

func mapFD(fd int) (*Board, error) {
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map board: %w", err)
	}
	return &Board{mem: mem, fd: fd}, nil
}

// FD of the memfd, owned by the board.
func (b *Board) FD() int { return b.fd }

// Same reports whether both map one memfd.
func (b *Board) Same(o *Board) bool {
	var x, y unix.Stat_t
	return unix.Fstat(b.fd, &x) == nil && unix.Fstat(o.fd, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// Close unmaps the board and closes the descriptor. No slot may be used after.
func (b *Board) Close() {
	unix.Munmap(b.mem)
	unix.Close(b.fd)
}

func (b *Board) u32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&b.mem[off])) }
func (b *Board) u64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&b.mem[off])) }

// Mark announces that a slot changed and reports whether the server sleeps and
// must be woken.
func (b *Board) Mark(slot uint32) (wake bool) {
	atomic.OrUint64(b.u64(dirtyOff+int(slot/64)*8), 1<<(slot%64))
	return atomic.SwapUint32(b.u32(16), 0) == 1
}

// Arm asks for a wake-up at the next Mark. Call it, then Take once more, then
// sleep: a Mark between Take and Arm is not lost that way.
func (b *Board) Arm() { atomic.StoreUint32(b.u32(16), 1) }

// Take calls f for each slot marked since the last Take.
func (b *Board) Take(f func(slot uint32)) {
	for w := range (b.Used() + 63) / 64 {
		p := b.u64(dirtyOff + int(w)*8)
		if atomic.LoadUint64(p) == 0 {
			continue
		}
		for word := atomic.SwapUint64(p, 0); word != 0; word &= word - 1 {
			f(w*64 + uint32(bits.TrailingZeros64(word)))
		}
	}
}

// Used is the number of slots that were ever used: [0, Used). Looking at the
// others would make the kernel give them memory.
func (b *Board) Used() uint32 { return min(atomic.LoadUint32(b.u32(20)), Slots) }

// Slot gives access to one slot.
func (b *Board) Slot(i uint32) Slot { return Slot{b, headerSize + int(i)*slotSize} }

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
	s.b.mem[s.off+12] = byte(copy(s.b.mem[s.off+16:s.off+120], id))
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
	n := min(int(s.b.mem[s.off+12]), 104)
	return process.ID(s.b.mem[s.off+16 : s.off+16+n])
}

// PID of the process.
func (s Slot) PID() int { return int(atomic.LoadUint32(s.b.u32(s.off + 8))) }

// NotePID writes down the pid of a process whose start is not announced yet:
// for a keeper that takes over in the middle of it.
// Forking stands for it from just before the fork.
func (s Slot) NotePID(pid int) { atomic.StoreUint32(s.b.u32(s.off+8), uint32(pid)) }

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

// NoteReserved writes down when the slot was reserved, on a clock that nobody
// sets: the process started later.
func (s Slot) NoteReserved(bootNS int64) { atomic.StoreUint64(s.b.u64(s.off+208), uint64(bootNS)) }

// Reserved returns it, up to the exit; then, and if nobody wrote it down, 0.
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

// SetDeadline notes when the process's timeout is, on a clock that nobody sets,
// and what it kills.
func (s Slot) SetDeadline(bootNS int64, scope process.Scope) {
	atomic.StoreUint64(s.b.u64(s.off+248), uint64(bootNS)&^3|uint64(scope)&3)
}

// Deadline returns the timeout; ok is false if none was noted.
func (s Slot) Deadline() (bootNS int64, scope process.Scope, ok bool) {
	v := atomic.LoadUint64(s.b.u64(s.off + 248))
	return int64(v &^ 3), process.Scope(v & 3), v != 0
}
