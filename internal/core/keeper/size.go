//go:build linux

package keeper

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/process"
)

// sizeBurst is how many sizes of a terminal the index gets while the process writes
// nothing. Each record of output allows one more, up to this. So a client that changes the size
// without end doubles at most what the output takes in the index, and sizes are
// left out only where nothing was written on a terminal of that size.
const sizeBurst = 256

// sizes is what the keeper knows of the sizes that the index of a terminal has.
type sizes struct {
	last  process.Size
	known bool   // last is what the index says
	due   bool   // the index may say another than the terminal has: before the next byte it is looked at
	since uint16 // records since the size was written last
	left  uint16 // of sizeBurst
}

// changeSize sets the size of a terminal, and records it in the index. Earlier output
// is moved to the spool first. p.mu is held.
func (k *Keeper) changeSize(p *proc, size process.Size) error {
	s := &p.out[0]
	if !s.waiting {
		k.pump(p, s)
	}
	if s.fd < 0 {
		return unix.EIO
	}
	if p.sizes.due && p.sizes.left > 0 {
		k.noteSize(p) // that it was started with
	}
	if err := setSize(s.fd, size); err != nil {
		return err
	}
	failpoint.Hit(failpoint.Resized)
	if p.sizes.left == 0 {
		p.sizes.due = true
		return nil
	}
	p.sizes.left--
	k.noteSize(p)
	k.announce(p)
	return nil
}

// sizeBefore says in the index which size the terminal has on which the next bytes were
// written, if it does not say so nearby. p.mu is held.
func (k *Keeper) sizeBefore(p *proc) {
	if !p.pty {
		return
	}
	if p.sizes.since >= spool.SizeEvery {
		p.sizes.known = false
		p.sizes.due = true
	}
	if p.sizes.due {
		k.noteSize(p)
	}
	p.sizes.since++
	p.sizes.left = min(p.sizes.left+1, sizeBurst)
}

// noteSize writes the size that the terminal has, if the index says another. p.mu is
// held.
func (k *Keeper) noteSize(p *proc) {
	size, err := getSize(p.out[0].fd)
	if err != nil {
		return
	}
	if p.sizes.known && size == p.sizes.last {
		p.sizes.due = false
		return
	}
	r := spool.Sized(p.out[0].end, size)
	if p.indexEnd == 0 {
		r.Wall = p.slot.Started().UnixNano()
	}
	if err := k.index(p, r); err != nil {
		p.sizes.due = true // it is tried again before the next byte
		k.logf("process %s: index: %v", p.id, err)
		return
	}
	p.sizes = sizes{last: size, known: true, left: p.sizes.left}
}

// recallSize finds out what the index says of a terminal that a former keeper had, and
// makes up for a change that this one did not write any more. p.mu is held.
func (k *Keeper) recallSize(p *proc) {
	if p.out[0].eof || p.indexEnd == 0 {
		return
	}
	fd, err := k.openIndex(p)
	if err != nil {
		return
	}
	last, behind, ok := spool.LastSize(indexFile(fd), p.indexEnd)
	if !ok {
		return // the next byte finds that it is due
	}
	p.sizes.last, p.sizes.known, p.sizes.since = last, true, uint16(behind)
	k.noteSize(p)
}

// indexFile is an open index, to read.
type indexFile int

func (f indexFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := eintr.Pread(int(f), b, at)
	if err == nil && n < len(b) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
