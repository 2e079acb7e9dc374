package spool

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/tend-run/tend/process"
)

// SizeEvery is the number of index records after which the size of a terminal is
// written again, before the next byte.
const SizeEvery = 1024

// lookBack bounds the records that are looked at for the size that holds at a place. It
// leaves room for records of other kinds.
const lookBack = 2 * SizeEvery

// LastSize returns the newest size of a terminal in an index that ends at end, and the
// number of records after it. ok is false if there is none near the end: the index has
// none, or a version that does not repeat sizes has written since.
func LastSize(index io.ReaderAt, end int64) (size process.Size, behind int, ok bool) {
	walkBack(index, end/IndexSize, func(r *IndexRecord) bool {
		if ok = r.Kind == IndexSized; ok {
			size = r.Size()
		} else {
			behind++
		}
		return !ok
	})
	return size, behind, ok
}

// walkBack calls see with the records before a place, the last first, until it returns
// false. A damaged record is one of no kind.
func walkBack(index io.ReaderAt, end int64, see func(*IndexRecord) bool) {
	b := batches.Get().(*batch)
	defer batches.Put(b)
	for at, least := end, max(0, end-lookBack); at > least; {
		n := min(int64(len(b.rec)), at-least)
		raw := b.raw[:n*IndexSize]
		if got, err := index.ReadAt(raw, (at-n)*IndexSize); got < len(raw) && err != nil {
			return
		}
		for ; n > 0; n-- {
			r, ok := ParseIndex(raw[(n-1)*IndexSize:])
			if !ok {
				r = IndexRecord{}
			}
			if !see(&r) {
				return
			}
			at--
		}
	}
}

// seekSize moves the cursor, which has sought a byte of the terminal, back to the first
// size that was set there, and returns the one that held before; ok is false if that is
// not known.
func (c *cursor) seekSize(dir string, pos int64) (size process.Size, ok bool, err error) {
	if c.at == 0 {
		return size, false, nil
	}
	f, err := open(dir, IndexName, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, process.ErrDamaged) {
		return size, false, nil
	} else if err != nil {
		return size, false, err
	}
	defer f.Close()
	at := c.at / IndexSize
	first := at
	walkBack(f, at, func(r *IndexRecord) bool {
		at--
		switch {
		case r.Kind != IndexSized:
		case r.Offset >= pos:
			first = at
		default:
			size, ok = r.Size(), true
		}
		return !ok
	})
	c.at = first * IndexSize
	return size, ok, nil
}

// sized returns the change of size that a record says; verdict is indexEnds if there is
// nothing to deliver for it.
func (r *reader) sized(rec *IndexRecord, p *Progress, max int) (piece, verdict, error) {
	s, to := rec.Stream, rec.Offset
	switch {
	case !r.opts.Sizes || !r.want[s] || to > r.bound(s, p):
	case to > p.End[s]:
		return piece{}, notYet, nil
	case to > r.pos[s] && r.pos[s] < p.Base[s]:
		return r.gap(p, s), picked, nil
	case to > r.pos[s]: // a hole in the index
		pc, _, err := r.cut(s, min(to, r.pos[s]+int64(max)), 0)
		return pc, picked, err
	case r.size == nil || *r.size != rec.Size():
		size := rec.Size()
		r.size = &size
		r.cur.i++
		return piece{stream: s, from: to, wall: rec.Wall, size: r.size}, picked, nil
	}
	r.cur.i++
	return piece{}, indexEnds, nil
}
