//go:build linux

package board

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/process"
)

// The board is shared memory, and whoever may open the keeper's descriptors can
// write to it. So a keeper that takes it over believes nothing that cannot be so,
// and what it finds damaged it makes again (internal/core/keeper/rebuild.go).

// maxPID is the largest pid that Linux gives (PID_MAX_LIMIT).
const maxPID = 4 << 20

// strange are flags that no version sets: chance sets one of them. Those below,
// FlagStdinBroken included, are versions'.
const strange = 0xfe << 24

// Intact reports whether the header is this version's.
func (b *Board) Intact() bool {
	return [8]byte(b.mem[:8]) == magic && *b.u32(8) == version && *b.u32(12) == Slots
}

// Plausible reports whether the slot holds what a keeper may have written there.
func (s Slot) Plausible() bool {
	f := s.Flags()
	if f&strange != 0 {
		return false
	}
	if f&FlagUsed == 0 {
		return true
	}
	if s.b.mem[s.off+12] > process.MaxIDLen || s.Session() > maxPID || s.ID().Validate() != nil {
		return false
	}
	pid := uint32(s.PID())
	if f&FlagStarted == 0 {
		return pid <= maxPID || pid == Forking
	}
	for st := process.Stdout; st <= process.PTY; st++ {
		if s.Base(st) < 0 || s.End(st) < 0 {
			return false
		}
	}
	return pid > 0 && pid <= maxPID && s.IndexEnd() >= 0
}

// Owned reports whether the slot is the one that a process got: of its gen and
// with its id.
func (s Slot) Owned(gen uint32, id process.ID) bool {
	n := min(int(s.b.mem[s.off+12]), process.MaxIDLen)
	return s.Gen() == gen && s.Flags()&FlagUsed != 0 && string(s.b.mem[s.off+16:s.off+16+n]) == string(id)
}

// Remains copies the rest of a damaged board, whatever it is, to private memory, where
// nobody can change it any more. Missing parts are zero.
func Remains(fd int) (*Board, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	_, _ = eintr.Pread(fd, mem, 0)
	return &Board{mem: mem, fd: -1}, nil
}

// Restore gives the slot its content on a previous board.
func (s Slot) Restore(from Slot) {
	s.use()
	copy(s.b.mem[s.off:s.off+slotSize], from.b.mem[from.off:from.off+slotSize])
}

// Assign gives the slot to a process that had it on a former board, with the gen
// that it had there, and nothing noted about it.
func (s Slot) Assign(gen uint32, id process.ID) {
	s.Start(gen - 1)
	s.Reserve(id)
}

// Start sets how many owners a slot that is free has had.
func (s Slot) Start(gen uint32) {
	s.use()
	atomic.StoreUint32(s.b.u32(s.off), gen)
}
