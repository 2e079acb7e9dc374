//go:build linux

// Package board is the shared memory in which the keeper publishes the progress of each
// live process for the server. It is a memfd that the anchor holds, so it survives the
// death of either.
//
// # Why
//
// The keeper must never wait for the server. A store to shared memory cannot block,
// coalesces by itself, costs no system call, and survives the server: the next server
// maps the board and knows everything.
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
// A slot belongs to one process, from before the creation of its directory until the
// server has retired it. gen counts its owners: a reader that copies a slot compares
// gen before and after.
//
//	offset  size  what                                         written by
//	0       4     gen                                          keeper
//	4       4     flags (Flag*)                                keeper
//	8       4     pid                                          keeper, kernel
//	12      1     length of the id                             keeper
//	16      100   id                                           keeper
//	116     4     session and group of the process, if it      kernel
//	              does not lead them; 0: the pid
//	120     32    end[4]: bytes in the spool by stream;        keeper
//	              end[0]: bytes of stdin accepted              server
//	152     32    base[4]: oldest byte kept by stream;         keeper
//	              base[0]: bytes of stdin delivered            feeder
//	184     8     end of the index file                        keeper
//	192     8     start, unix ns                               keeper
//	200     4     exit code; before the exit 1 if what was     keeper,
//	              forked ended before it came to the program   its child
//	204     1     exit signal                                  keeper
//	205     1     before the exit: 1 more than the cause of    keeper
//	              the death that the keeper is bringing about
//	              by the signal at 204; 0: none
//	206     1     exit cause                                   keeper
//	207     1     1: core dumped                               keeper
//	208     8     exit time, unix ns; before the exit: when     keeper
//	              the slot was reserved, CLOCK_BOOTTIME ns
//	216     8     user time, ns; before the exit, in the       keeper,
//	              first 4, the pid inside of a sandbox         kernel
//	224     8     system time, ns; before the exit, from 220   keeper,
//	              on, the pid in digits that a child inside    its child
//	              of a sandbox has written (spawn.Digits)
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
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/memfd"
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

// Board is a mapped board. It is safe for concurrent use by one keeper and one
// server.
type Board struct {
	mem []byte
	fd  int
}

// Create makes a fresh board in a memfd.
func Create() (*Board, error) {
	fd, err := memfd.Create("tend-board", 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("board size: %w", err)
	}
	memfd.Seal(fd, memfd.FixedSize) // one that is cut short would end keeper and server
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

// FD of the memfd, owned by the board, and Memory, which is its file from the beginning.
func (b *Board) FD() int        { return b.fd }
func (b *Board) Memory() []byte { return b.mem }

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
