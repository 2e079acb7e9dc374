package spool

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"

	"github.com/tend-run/tend/process"
)

// piece is a range of one stream to deliver, or a gap in it.
type piece struct {
	stream   process.Stream
	from, to int64
	wall     int64
	gap      bool
	size     *process.Size // nothing to deliver but that the terminal has this size from here on
}

// cursor walks the index: a position, and a batch of records read ahead.
type cursor struct {
	f     *os.File
	at    int64 // of the first record not yet in the batch
	batch *batch
	i, n  int
}

// batch is a borrowed buffer, held while there is something to read.
type batch struct {
	raw [64 * IndexSize]byte
	rec [64]IndexRecord
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// peek returns the record at the cursor; ok is false if the index has no more
// up to end.
func (c *cursor) peek(dir string, end int64) (*IndexRecord, bool, error) {
	for c.i >= c.n {
		if c.at+IndexSize > end {
			return nil, false, nil
		}
		if err := c.fill(dir, end); err != nil {
			return nil, false, err
		}
	}
	return &c.batch.rec[c.i], true, nil
}

func (c *cursor) fill(dir string, end int64) error {
	if c.f == nil {
		f, err := open(dir, IndexName, os.O_RDONLY)
		if err != nil {
			return err
		}
		c.f = f
	}
	if c.batch == nil {
		c.batch = batches.Get().(*batch)
	}
	want := min(end-c.at, int64(len(c.batch.raw)))
	n, err := c.f.ReadAt(c.batch.raw[:want], c.at)
	if n < IndexSize {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	c.i, c.n = 0, 0
	if skip := pastHole(c.f, c.batch.raw[:n], c.at, end); skip > 0 {
		c.at += skip
		return nil
	}
	for at := 0; at+IndexSize <= n; at += IndexSize {
		rec, ok := ParseIndex(c.batch.raw[at:])
		if !ok {
			// A damaged record: its bytes are delivered when the next record
			// of the stream, or the end, shows the hole.
			rec = IndexRecord{}
		}
		c.batch.rec[c.n] = rec
		c.n++
	}
	c.at += int64(c.n * IndexSize)
	return nil
}

// mark is the place of the record that peek returns next.
func (c *cursor) mark() int64 { return c.at - int64(c.n-c.i)*IndexSize }

// rewind goes back to a mark.
func (c *cursor) rewind(mark int64) {
	if mark != c.mark() {
		c.at, c.i, c.n = mark, 0, 0
	}
}

// release gives the batch back; what it held ahead is read again.
func (c *cursor) release() {
	if c.batch != nil {
		c.at = c.mark()
		batches.Put(c.batch)
		c.batch, c.i, c.n = nil, 0, 0
	}
}

func (c *cursor) close() {
	c.release()
	if c.f != nil {
		c.f.Close()
		c.f = nil
	}
}

// pick chooses the next piece of output, in the order of arrival unless that
// was given up, and opens its file. ok is false when there is none now.
func (r *reader) pick(p *Progress, max int) (piece, bool, error) {
	if !r.opts.Unordered {
		pc, v, err := r.pickOrdered(p, max)
		if v != indexEnds || err != nil {
			return pc, v == picked, err
		}
	}
	// What the index does not cover, and everything without order.
	for s := process.Stdout; s <= process.PTY; s++ {
		if end := r.limit(s, p); r.want[s] && r.pos[s] < end {
			if r.pos[s] < p.Base[s] {
				return r.gap(p, s), true, nil
			}
			return r.cut(s, min(end, r.pos[s]+int64(max)), 0)
		}
	}
	return piece{}, false, nil
}

// joinWithin bounds the records that are delivered as one event, in ms from the
// first to the last: the event has the time of the first alone. Less makes a
// long output of short lines slow to read.
const joinWithin = 100

// joins is how far apart in ms the records of one event may be, less one.
func (r *reader) joins() uint32 {
	if r.opts.ExactTimes {
		return 1
	}
	return joinWithin
}

// verdict is what the index says about what comes next.
type verdict uint8

const (
	picked    verdict = iota
	indexEnds         // it says nothing (more)
	notYet            // bytes whose end is about to be announced: nothing may overtake them
)

func (r *reader) pickOrdered(p *Progress, max int) (piece, verdict, error) {
	c := &r.cur
	for {
		rec, ok, err := c.peek(r.dir, p.IndexEnd)
		if err != nil && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, process.ErrDamaged) || errors.Is(err, io.ErrUnexpectedEOF)) {
			return piece{}, indexEnds, nil // no index: the order is not known
		}
		if !ok || err != nil {
			return piece{}, indexEnds, err
		}
		if rec.Kind == IndexSized {
			if pc, v, err := r.sized(rec, p, max); v != indexEnds || err != nil {
				return pc, v, err
			}
			continue
		}
		s := rec.Stream
		recEnd := rec.Offset + int64(rec.Len)
		if rec.Kind != IndexData || !r.want[s] || min(recEnd, r.bound(s, p)) <= r.pos[s] {
			c.i++
			continue
		}
		end := min(recEnd, r.limit(s, p))
		switch {
		case end <= r.pos[s]:
			// The ends were looked at before the index was.
			return piece{}, notYet, nil
		case r.pos[s] < p.Base[s]:
			return r.gap(p, s), picked, nil
		}
		wall, mono := rec.Wall, rec.Mono
		if rec.Offset > r.pos[s] { // a hole in the index
			end, wall = min(rec.Offset, end), 0
		} else {
			// Join what follows at once. Where it reaches the end of a record
			// the cursor passes it.
			for end-r.pos[s] < int64(max) && end == recEnd {
				c.i++
				next, ok, err := c.peek(r.dir, p.IndexEnd)
				if err != nil || !ok || next.Kind != IndexData || next.Stream != s || next.Offset != end {
					break
				}
				if next.Mono-mono >= r.joins() || (next.Wall == 0) != (wall == 0) {
					break // its time is another
				}
				recEnd = next.Offset + int64(next.Len)
				end = min(recEnd, r.limit(s, p))
			}
		}
		pc, _, err := r.cut(s, min(end, r.pos[s]+int64(max)), wall)
		return pc, picked, err
	}
}

// gap is the piece of s that was freed before it was read.
func (r *reader) gap(p *Progress, s process.Stream) piece {
	return piece{stream: s, from: r.pos[s], to: min(p.Base[s], r.bound(s, p)), gap: true}
}

// cut makes the piece of s from its position to end.
func (r *reader) cut(s process.Stream, end, wall int64) (piece, bool, error) {
	if err := r.file(s); err != nil {
		return piece{}, false, err
	}
	return piece{stream: s, from: r.pos[s], to: end, wall: wall}, true, nil
}

// bound is where this reader ends a stream, even if the stream grows further.
func (r *reader) bound(s process.Stream, p *Progress) int64 {
	end := int64(math.MaxInt64)
	if p.EOF[s] {
		end = max(p.End[s], r.pos[s])
	}
	if r.opts.NoFollow {
		end = min(end, r.stop[s])
	}
	if r.sentExit && r.drained {
		end = min(end, max(r.exitEnd[s], r.pos[s]))
	}
	return end
}

// limit is how far a stream may be read now.
func (r *reader) limit(s process.Stream, p *Progress) int64 {
	return min(p.End[s], r.bound(s, p))
}
