package spool

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/tend-run/tend/process"
)

// seek puts the cursor where a reader begins that already has all bytes of each
// stream before pos: every record before that place is about such bytes. The index
// ends at indexEnd, and its records up to there are about bytes before end.
//
// It is a binary search, because the offsets of one stream only grow in the index.
// In a damaged index it may go too far. That costs the order and the times of what
// it passed, but no bytes: bytes that no record covers are delivered, too.
func (c *cursor) seek(dir string, want [4]bool, pos, end [4]int64, indexEnd int64) error {
	if pos == [4]int64{} {
		return nil
	}
	records := indexEnd / IndexSize
	first := records
	var f *os.File
	var at int64 // the first record that is not in the hole at the head
	for s := process.Stdout; s <= process.PTY; s++ {
		if !want[s] || pos[s] >= end[s] {
			continue // what follows is behind indexEnd
		}
		if f == nil {
			var err error
			if f, err = open(dir, IndexName, os.O_RDONLY); errors.Is(err, fs.ErrNotExist) || errors.Is(err, process.ErrDamaged) {
				return nil
			} else if err != nil {
				return err
			}
			defer f.Close()
			at = nextData(f, 0, indexEnd) / IndexSize
		}
		found, err := firstAfter(f, s, pos[s], at, first)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // shorter than was announced: the reader continues with what there is
		}
		if err != nil {
			return err
		}
		first = found
	}
	c.at = first * IndexSize
	return nil
}

// firstAfter finds, among the records from lo to hi, the first one of a stream
// that reaches beyond pos; hi if there is none.
func firstAfter(f *os.File, s process.Stream, pos, lo, hi int64) (int64, error) {
	b := batches.Get().(*batch)
	defer batches.Put(b)
	found := hi
	for lo < hi {
		mid := lo + (hi-lo)/2
		// The next record of the stream speaks for those between. What was
		// looked at is not looked at again, whatever it says.
		at, end, err := b.next(f, s, mid, hi)
		switch {
		case err != nil:
			return 0, err
		case at < hi && end <= pos:
			lo = at + 1
		case at < hi:
			found, hi = at, mid
		default:
			hi = mid
		}
	}
	return found, nil
}

// next returns the first data record of a stream among those from at to hi, and
// where it ends; hi if there is none.
func (b *batch) next(f *os.File, s process.Stream, at, hi int64) (int64, int64, error) {
	for at < hi {
		raw := b.raw[:min(int64(len(b.raw)), (hi-at)*IndexSize)]
		n, err := f.ReadAt(raw, at*IndexSize)
		if n < IndexSize {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, 0, err
		}
		if skip := pastHole(f, raw[:n], at*IndexSize, hi*IndexSize); skip > 0 {
			at += skip / IndexSize
			continue
		}
		for i := 0; i+IndexSize <= n; i += IndexSize {
			if rec, ok := ParseIndex(raw[i:]); ok && rec.Kind == IndexData && rec.Stream == s {
				return at + int64(i/IndexSize), rec.Offset + int64(rec.Len), nil
			}
		}
		at += int64(n / IndexSize)
	}
	return hi, 0, nil
}
