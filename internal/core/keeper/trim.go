//go:build linux

package keeper

import (
	"math"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spool"
)

// dropHead frees the head of a stream up to the block that holds before.
func (k *Keeper) dropHead(p *proc, s *outStream, before int64) {
	base := min(before, s.end) &^ (blockSize - 1)
	if base <= s.base {
		return
	}
	old := s.base
	s.base = base
	p.slot.SetBase(s.stream, base)
	k.announce(p)
	failpoint.Hit(failpoint.TrimBase)
	if err := k.index(p, spool.IndexRecord{Kind: spool.IndexTrim, Stream: s.stream, Offset: base}); err != nil {
		// Without the record a later reader would take the hole for output,
		// so the bytes stay; the next trim frees them too.
		k.logf("process %s: index: %v", p.id, err)
		s.unpunched = min(s.unpunched, old)
		return
	}
	failpoint.Hit(failpoint.TrimRecorded)
	if fd, err := k.openFile(p, s); err == nil {
		if err := spool.Punch(fd, min(s.unpunched, old), base); err != nil {
			k.logf("process %s: output cannot be freed on this filesystem: %v", p.id, err)
		}
		s.unpunched = base
	}
	failpoint.Hit(failpoint.TrimPunched)
	k.trimIndex(p)
}

// indexLook bounds how much of the index one trim looks through, in bytes: the
// process waits meanwhile.
const indexLook = 8 << 20

// trimIndex frees the index records of freed bytes. Trims lag behind only while a
// stream's records are more than indexLook for each quarter of its limit.
func (k *Keeper) trimIndex(p *proc) {
	fd, err := k.openIndex(p)
	if err != nil {
		return
	}
	var base [4]int64
	for i := range base {
		base[i] = math.MaxInt64 // a stream that it does not have
	}
	for i := range p.out {
		base[p.out[i].stream] = p.out[i].base
	}
	at, err := spool.TrimIndex(fd, p.indexBase, p.indexEnd, indexLook, &base)
	if err != nil {
		return // as with the data: it keeps its space
	}
	p.indexBase = at
}
