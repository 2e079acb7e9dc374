package view

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
)

// tape is one stream as entries in the order of time, or one fact. It is read in blocks,
// from one end.
type tape struct {
	l      *logger
	in     *process.Info
	stream process.Stream
	rank   int       // among those of the same time
	key    time.Time // no entry that is left comes before it
	ready  []LogEntry

	// What is not read yet lies from from to to, and what is read and no whole line yet
	// in rest: its end, or, backward, its beginning is missing.
	from, to  int64
	base, end int64 // of the stream at the time of the call
	unsought  bool  // the time that is asked for is still to be found
	torn      bool  // forward: what comes next begins within a line that is not wanted
	skipped   int   // bytes of that line
	ended     bool  // backward: a line end follows rest
	rest      []byte
	restAt    time.Time // of rest's first byte
}

// over reports whether nothing is left.
func (t *tape) over() bool { return len(t.ready) == 0 && t.from >= t.to }

// mark says when the bytes from an index on were written.
type mark struct {
	i  int
	at time.Time
}

// timeAt is when the byte at an index was written.
func timeAt(marks []mark, i int, before time.Time) time.Time {
	for _, m := range marks {
		if m.i > i {
			break
		}
		before = m.at
	}
	return before
}

// startOf is where the block of a byte begins. A reader gives what came within logJoin of
// what it reads first the time of that: so blocks begin at the same places for everybody,
// or a line would have one time in one answer and an earlier one in the next.
func startOf(at int64) int64 { return at - at%logBlock }

// fill reads a block, and makes the lines in it ready.
func (t *tape) fill() error {
	if t.unsought {
		t.unsought = false
		if err := t.seek(); err != nil {
			return t.fails(err)
		}
		return nil // others may come first now
	}
	from, to := t.from, min(startOf(t.from)+logBlock, t.to)
	if t.l.o.Backward {
		from, to = max(t.from, startOf(t.to-1)), t.to
	}
	data, marks, gap, err := t.read(from, to)
	if err != nil {
		return t.fails(err)
	}
	if gap != nil { // freed since the call began, and all that is before it, too
		if t.base = gap.To; !t.l.o.Backward {
			t.flush()
			t.lost(*gap, t.key)
		}
	}
	if t.l.o.Backward {
		t.to = from
		t.from = max(t.from, t.base)
		t.takeBackward(data, marks)
	} else {
		t.from = max(to, t.base)
		t.takeForward(data, marks)
	}
	if len(t.ready) == 0 && len(marks) > 0 {
		switch t.key = marks[len(marks)-1].at; {
		case t.l.o.Backward:
			t.key = marks[0].at
		case len(t.rest) > 0:
			t.key = t.restAt
		}
		t.bound()
	}
	return nil
}

// bound: what is not asked for is not waited for.
func (t *tape) bound() {
	if !t.l.within(t.key) {
		t.key = t.l.o.From
	}
}

// fails reports what cannot be read, while the other tapes are read further.
func (t *tape) fails(err error) error {
	if cerr := t.l.ctx.Err(); cerr != nil {
		return cerr
	}
	if errors.Is(err, process.ErrUnavailable) {
		return err
	}
	t.from, t.to, t.rest = 0, 0, nil
	if !errors.Is(err, process.ErrNotFound) { // else it was removed
		t.ready = append(t.ready, LogEntry{Time: t.key, Kind: LogLost, Of: t.in, Stream: t.stream, Text: err.Error()})
	}
	return nil
}

func (t *tape) lost(g process.Gap, at time.Time) {
	t.ready = append(t.ready, LogEntry{Time: at, Kind: LogLost, Of: t.in, Stream: g.Stream, Text: (&process.GapError{Gap: g}).Error()})
}

func (t *tape) line(at time.Time, text []byte) {
	if !t.l.within(at) {
		return
	}
	t.l.left -= logEntry
	text = bytes.TrimSuffix(text, []byte{'\r'})
	t.ready = append(t.ready, LogEntry{Time: at, Kind: LogLine, Of: t.in, Stream: t.stream, Text: strings.ToValidUTF8(string(text), "\uFFFD")})
}

// flush: the rest is all that there is of its line.
func (t *tape) flush() {
	if len(t.rest) > 0 {
		t.line(t.restAt, t.rest)
		t.rest = nil
	}
}

// wanted is the index of the first byte of a block that was written at the time that is
// asked for, or later.
func (t *tape) wanted(data []byte, marks []mark) int {
	for _, m := range marks {
		if t.l.within(m.at) {
			return m.i
		}
	}
	return len(data)
}

func (t *tape) takeForward(data []byte, marks []mark) {
	at := 0
	for at < len(data) {
		n := bytes.IndexByte(data[at:], '\n')
		if t.torn {
			switch first := t.wanted(data, marks); {
			case n >= 0 && (t.skipped+n <= maxLogLine || at+n < first):
				t.torn, at = false, at+n+1
			case first < len(data): // the line is more than one entry
				t.torn, at = false, first
			default:
				t.skipped += len(data) - at
				return
			}
			continue
		}
		if len(t.rest) == 0 {
			t.restAt = timeAt(marks, at, t.key)
		}
		room := maxLogLine - len(t.rest)
		switch {
		case n >= 0 && n <= room:
			t.line(t.restAt, append(t.rest, data[at:at+n]...))
			t.rest, at = nil, at+n+1
		case len(data)-at >= room:
			t.rest = append(t.rest, data[at:at+room]...)
			at += room
			t.flush()
		default:
			t.rest = append(t.rest, data[at:]...)
			at = len(data)
		}
	}
	if t.from >= t.to {
		t.flush()
	}
}

// takeBackward takes the block before rest.
func (t *tape) takeBackward(data []byte, marks []mark) {
	whole := t.to <= t.base
	text := slices.Concat(data, t.rest)
	start := func(i int) time.Time {
		if i >= len(data) {
			return t.restAt
		}
		return timeAt(marks, i, t.key)
	}
	for {
		i := bytes.LastIndexByte(text, '\n')
		last := text[i+1:]
		if i < 0 && !whole && len(last) < maxLogLine {
			break // its beginning is in the block before
		}
		for len(last) > maxLogLine {
			from := len(last) - maxLogLine
			t.line(start(i+1+from), last[from:])
			last, t.ended = last[:from], false
		}
		if len(last) > 0 || t.ended {
			t.line(start(i+1), last)
		}
		if text, t.ended = text[:max(i, 0)], i >= 0; i < 0 {
			break
		}
	}
	if t.rest = text; len(data) > 0 {
		t.restAt = start(0)
	}
	if whole && t.base > 0 {
		t.lost(process.Gap{Stream: t.stream, To: t.base}, t.in.Started)
	}
}

// read reads a range of the stream, or what is left of it after a gap.
func (t *tape) read(from, to int64) (data []byte, marks []mark, gap *process.Gap, err error) {
	opts := process.ReadOptions{Streams: []process.Stream{t.stream}, NoFollow: true, MaxChunk: int(min(max(to-from, 1), logBlock))}
	opts.From[t.stream] = from
	t.l.left -= logPeek
	if to-from > 1 {
		t.l.left -= logRead
	}
	p, err := t.l.m.Get(t.l.ctx, process.Selector{ID: t.in.ID})
	if err != nil {
		return nil, nil, nil, err
	}
	r, err := p.Read(t.l.ctx, opts)
	if err != nil {
		return nil, nil, nil, err
	}
	for ev, err := range process.Follow(t.l.ctx, r) {
		if err != nil {
			return nil, nil, nil, err
		}
		switch ev.Kind {
		case process.EventGap:
			gap = &ev.Gap
			if from = ev.Gap.To; from >= to {
				return nil, nil, gap, nil
			}
		case process.EventOutput:
			at := ev.Time
			if at.IsZero() { // nobody knows; the order is that of the stream
				if at = t.in.Started; len(marks) > 0 {
					at = marks[len(marks)-1].at
				}
			}
			marks = append(marks, mark{len(data), at})
			data = append(data, ev.Data[:min(int64(len(ev.Data)), to-from-int64(len(data)))]...)
		}
		if int64(len(data)) >= to-from {
			break
		}
	}
	t.l.left -= int64(len(data))
	return data, marks, gap, nil
}

// seek leaves out what was written before the time that is asked for, or, backward, after
// it, to within a block; and finds out how late the rest was written, so that the streams
// of processes that have long ended are not read before those that come first.
func (t *tape) seek() error {
	if !t.l.o.From.IsZero() {
		if err := t.find(); err != nil {
			return err
		}
	}
	last, err := t.written(t.to - 1)
	if err != nil || last.IsZero() {
		return err
	}
	switch {
	case t.l.o.Backward:
		t.key = last
		t.bound()
	case !t.l.within(last):
		t.from, t.to = 0, 0
	}
	return nil
}

// written is when a byte was written; zero: it was freed.
func (t *tape) written(at int64) (time.Time, error) {
	_, marks, gap, err := t.read(at, at+1)
	if err != nil || gap != nil || len(marks) == 0 {
		return time.Time{}, err
	}
	return marks[0].at, nil
}

// find leaves out what is not asked for.
func (t *tape) find() error {
	from, to := t.from, t.to
	for to-from > logBlock {
		middle := from + (to-from)/2
		at, err := t.written(middle)
		if err != nil {
			return err
		}
		switch {
		case at.Before(t.l.o.From), t.l.o.Backward && !at.After(t.l.o.From.Add(logJoin)): // also where it was freed
			from = middle
		default:
			to = middle
		}
	}
	if !t.l.o.Backward {
		t.from = max(t.base, startOf(max(from-maxLogLine, 0))) // within maxLogLine a line ends, or it is a long one
		t.torn = t.from > t.base
		return nil
	}
	t.to = to
	if to < t.end { // the line that it is in is whole
		data, _, _, err := t.read(to, min(to+maxLogLine, t.end))
		if err != nil {
			return err
		}
		if n := bytes.IndexByte(data, '\n'); n >= 0 {
			data = data[:n+1]
		}
		t.to += int64(len(data))
	}
	return nil
}
