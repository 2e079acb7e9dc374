package spool

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/tend-run/tend/process"
)

// piece is a range of one stream to deliver, or a gap in it.
type piece struct {
	stream   process.Stream
	from, to int64
	wall     int64
	gap      bool
}

// cursor walks the index: a position, and a batch of records read ahead.
type cursor struct {
	f     *os.File
	at    int64 // of the first record not yet in the batch
	batch *batch
	i, n  int
}

// batch is lent while there is something to read.
type batch struct {
	raw [64 * IndexSize]byte
	rec [64]IndexRecord
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// peek returns the record at the cursor; ok is false if the index has no more
// up to end.
func (c *cursor) peek(dir string, end int64) (*IndexRecord, bool, error) {
	for c.i >= c.n {
		if c.at >= end {
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
		f, err := os.Open(filepath.Join(dir, IndexName))
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

// release gives the batch back, if it holds nothing.
func (c *cursor) release() {
	if c.batch != nil && c.i >= c.n {
		batches.Put(c.batch)
		c.batch, c.i, c.n = nil, 0, 0
	}
}

func (c *cursor) close() {
	if c.batch != nil {
		batches.Put(c.batch)
		c.batch, c.i, c.n = nil, 0, 0
	}
	if c.f != nil {
		c.f.Close()
		c.f = nil
	}
}

// pick chooses the next piece of output, in the order of arrival unless that
// was given up, and opens its file. ok is false when there is none now.
func (r *reader) pick(p *Progress, max int) (piece, bool, error) {
	if !r.opts.Unordered {
		pc, ok, err := r.pickOrdered(p, max)
		if ok || err != nil {
			return pc, ok, err
		}
	}
	// What the index does not cover (yet), and everything without order.
	for s := process.Stdout; s <= process.PTY; s++ {
		if end := r.limit(s, p); r.want[s] && r.pos[s] < end {
			return r.cut(p, s, min(end, r.pos[s]+int64(max)), 0)
		}
	}
	return piece{}, false, nil
}

func (r *reader) pickOrdered(p *Progress, max int) (piece, bool, error) {
	c := &r.cur
	for {
		rec, ok, err := c.peek(r.dir, p.IndexEnd)
		if err != nil && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF)) {
			return piece{}, false, nil // no index: the order is not known
		}
		if !ok || err != nil {
			return piece{}, false, err
		}
		s := rec.Stream
		end := min(rec.Offset+int64(rec.Len), r.limit(s, p))
		if rec.Kind != IndexData || !r.want[s] || end <= r.pos[s] {
			if rec.Kind == IndexData && r.want[s] && rec.Offset+int64(rec.Len) > r.limit(s, p) && r.pos[s] < rec.Offset+int64(rec.Len) {
				return piece{}, false, nil // announced in the index, not yet by the ends
			}
			c.i++
			continue
		}
		wall := rec.Wall
		if rec.Offset > r.pos[s] { // a hole in the index
			return r.cut(p, s, min(rec.Offset, r.pos[s]+int64(max)), 0)
		}
		// Join what follows at once.
		for end-r.pos[s] < int64(max) && end == rec.Offset+int64(rec.Len) {
			c.i++
			next, ok, err := c.peek(r.dir, p.IndexEnd)
			if err != nil || !ok || next.Kind != IndexData || next.Stream != s || next.Offset != end {
				break
			}
			rec = next
			end = min(rec.Offset+int64(rec.Len), r.limit(s, p))
		}
		return r.cut(p, s, min(end, r.pos[s]+int64(max)), wall)
	}
}

// cut makes the piece of s from its position to end, or the gap that lies at
// the position.
func (r *reader) cut(p *Progress, s process.Stream, end, wall int64) (piece, bool, error) {
	from := r.pos[s]
	if base := p.Base[s]; base > from {
		return piece{stream: s, from: from, to: base, gap: true}, true, nil
	}
	if err := r.file(s); err != nil {
		return piece{}, false, err
	}
	return piece{stream: s, from: from, to: end, wall: wall}, true, nil
}
