package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"time"

	"github.com/tend-run/tend/process"
)

// Bounds of process.ReadOptions.MaxChunk.
const (
	defaultChunk = 256 << 10
	maxChunk     = 1 << 20
)

// reader implements process.Reader and process.Prompter. While it has nothing
// to deliver it holds no buffer and no goroutine: there may be thousands.
type reader struct {
	dir    string
	id     process.ID
	src    Source
	opts   process.ReadOptions
	want   [4]bool
	ready  chan struct{}
	cancel func()
	at     *Position // reported to the Trail, which frees; nil: there is none
	leave  func(ended bool)

	mu    sync.Mutex
	files [4]*os.File
	buf   *buffer // lent while the last event's data is in use
	cur   cursor
	size  *process.Size // that the reader knows of
	pos   [4]int64      // next byte to deliver
	stop  [4]int64      // NoFollow: where to end

	sentStart, sentExit, closed bool
	unsized                     bool // size, from before the first byte, is not delivered yet
	ended                       bool // io.EOF was returned
	sentEOF                     [4]bool
	exitEnd                     [4]int64 // ends when the exit was first seen
	sawExit                     *process.Exit
	drained                     bool // the drain time has passed
	past                        bool // NoFollow on a live process: its exit came after the call
	timer                       *time.Timer
}

var (
	_ process.Reader   = (*reader)(nil)
	_ process.Prompter = (*reader)(nil)
)

// NewReader opens a reader on the directory of a process that has the given
// output streams. Errors: process.ErrOffset, *process.InvalidError.
func NewReader(dir string, id process.ID, streams []process.Stream, src Source, opts process.ReadOptions) (process.Reader, error) {
	r := &reader{dir: dir, id: id, src: src, opts: opts, ready: make(chan struct{}, 1)}
	switch {
	case opts.MaxChunk == 0:
		r.opts.MaxChunk = defaultChunk
	case opts.MaxChunk < 1 || opts.MaxChunk > maxChunk:
		return nil, &process.InvalidError{Field: "max_chunk", Reason: fmt.Sprintf("is %d bytes; 1 to %d are allowed, 0 for %d",
			opts.MaxChunk, maxChunk, defaultChunk)}
	}
	has := [4]bool{}
	for _, s := range streams {
		has[s] = true
		r.want[s] = len(opts.Streams) == 0
	}
	for _, s := range opts.Streams {
		if s < process.Stdout || s > process.PTY {
			return nil, &process.InvalidError{Field: "streams", Reason: fmt.Sprintf("has %s; stdout, stderr and pty can be read", s)}
		}
		r.want[s] = has[s]
	}
	// The index's end is taken before the ends are: nothing that arrives in
	// between is then behind the cursor.
	early := src.Progress().IndexEnd
	p := src.Progress()
	var begin [4]int64 // what is kept of what was asked for
	for s := range r.want {
		from := opts.From[s]
		r.stop[s] = p.End[s]
		if !r.want[s] {
			continue
		}
		switch {
		case from == process.FromNow:
			from = p.End[s]
		case from < 0:
			return nil, &process.InvalidError{Field: "from", Reason: fmt.Sprintf("is %d for %s; 0 or more, or FromNow", from, process.Stream(s))}
		case from > p.End[s]:
			return nil, process.PastEnd(process.Stream(s), p.End[s], from)
		}
		r.pos[s] = from
		begin[s] = max(from, p.Base[s])
	}
	if !opts.Unordered {
		if err := r.cur.seek(dir, r.want, begin, p.End, early); err != nil {
			return nil, fmt.Errorf("find the place in the output of %s: %w", id, err)
		}
	}
	if r.opts.Sizes && r.want[process.PTY] && !opts.Unordered {
		size, ok, err := r.cur.seekSize(dir, begin[process.PTY])
		if err != nil {
			return nil, fmt.Errorf("find the size in the output of %s: %w", id, err)
		}
		if ok {
			r.size, r.unsized = &size, true
		}
	}
	if opts.NoFollow {
		// The exit is delivered if it precedes the call. Output that
		// descendants write after the call must not defer it.
		if p.Held {
			p.Exit = nil // as if it came after the call: there is output before it
		}
		r.past, r.sawExit, r.exitEnd = p.Exit == nil, p.Exit, p.End
	}
	if trail, ok := src.(Trail); ok {
		r.at = new(Position)
		r.reportPosition()
		r.leave = trail.Follow(r.at)
	}
	r.cancel = src.Subscribe(r.ready)
	return r, nil
}

// Ready implements process.Reader.
func (r *reader) Ready() <-chan struct{} { return r.ready }

// Close implements process.Reader.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.cancel()
	if r.leave != nil {
		r.leave(r.ended)
	}
	r.release()
	if r.timer != nil {
		r.timer.Stop()
	}
	for _, f := range r.files {
		if f != nil {
			f.Close()
		}
	}
	r.cur.close()
	return nil
}

// Next implements process.Reader.
func (r *reader) Next() (process.Event, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		mark := r.cur.mark()
		ev, span, ok, err := r.next(pieceNow(r.opts.MaxChunk))
		if err != nil || !ok || ev.Kind != process.EventOutput {
			return ev, ok, err
		}
		r.buf = lend(span.Len)
		data := r.buf.b[:span.Len]
		err = readFull(span.File, data, span.Offset)
		if err == nil && r.src.Progress().Base[ev.Stream] <= ev.Offset {
			ev.Data = data
			return ev, true, nil
		}
		// Not delivered. Most likely it was freed while it was read, and what
		// was read may be zeros, or an error: the next round finds the gap.
		r.pos[ev.Stream] = ev.Offset
		r.cur.rewind(mark)
		if err != nil && r.src.Progress().Base[ev.Stream] <= ev.Offset {
			return process.Event{}, false, fmt.Errorf("read output of %s: %w", r.id, err)
		}
	}
}

// NextSpan implements process.Spanner.
func (r *reader) NextSpan(max int) (process.Event, process.Span, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if max <= 0 || max > 64*maxChunk {
		max = r.opts.MaxChunk
	}
	return r.next(max)
}

// Valid implements process.Spanner.
func (r *reader) Valid(s process.Stream, offset int64) bool {
	return s <= process.PTY && r.src.Progress().Base[s] <= offset
}

// Prompt implements process.Prompter. Where the source cannot call, Ready
// receives as before.
func (r *reader) Prompt(f func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A reader that keeps the order never has output at hand, so calls would
	// be of no use.
	if src, ok := r.src.(Prompter); ok && !r.closed && r.opts.Unordered {
		src.Prompt(r.ready, f)
	}
}

// AtHand implements process.Prompter: with order, the index has to be read.
func (r *reader) AtHand() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !r.opts.Unordered {
		return false
	}
	for s := range r.want {
		if r.want[s] && r.files[s] == nil {
			return false
		}
	}
	return true
}

// reportPosition reports to the Trail how far this reader is.
func (r *reader) reportPosition() {
	if r.at == nil {
		return
	}
	for s := range r.pos {
		at := int64(math.MaxInt64)
		if r.want[s] {
			at = r.pos[s]
		}
		r.at[s].Store(at)
	}
}

// next decides what comes next. Output is returned as a span.
func (r *reader) next(max int) (ev process.Event, span process.Span, ok bool, err error) {
	r.release()
	r.reportPosition() // of what the caller is done with
	if r.closed || r.ended {
		return ev, span, false, io.EOF
	}
	p := r.src.Progress()
	ev.ID = r.id
	if !r.sentStart {
		r.sentStart = true
		ev.Kind, ev.PID, ev.Time = process.EventStarted, p.PID, p.Started
		return ev, span, true, nil
	}
	if r.unsized {
		r.unsized = false
		ev.Kind, ev.Stream, ev.Offset, ev.Size = process.EventResized, process.PTY, r.pos[process.PTY], *r.size
		return ev, span, true, nil
	}
	if p.Exit != nil && r.sawExit == nil && !r.past && !p.Held {
		p = r.src.Progress() // with the ends of streams that came with the exit
		r.sawExit, r.exitEnd = p.Exit, p.End
	}
	mark := r.cur.mark()
	piece, ok, err := r.pick(&p, max)
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.src.Progress().Removed:
		r.remove()
		ev.Kind = process.EventRemoved
		return ev, span, true, nil
	case err != nil:
		r.cur.rewind(mark)
		return process.Event{}, span, false, fmt.Errorf("read output of %s: %w", r.id, err)
	case ok && piece.gap:
		ev.Kind, ev.Stream, ev.Offset = process.EventGap, piece.stream, piece.from
		ev.Gap = process.Gap{Stream: piece.stream, From: piece.from, To: piece.to}
		r.pos[piece.stream] = piece.to
		return ev, span, true, nil
	case ok:
		ev.Kind, ev.Stream, ev.Offset = process.EventOutput, piece.stream, piece.from
		if piece.wall != 0 {
			ev.Time = time.Unix(0, piece.wall)
		}
		if piece.size != nil {
			ev.Kind, ev.Size = process.EventResized, *piece.size
			return ev, span, true, nil
		}
		r.pos[piece.stream] = piece.to
		span = process.Span{File: r.files[piece.stream], Offset: piece.from, Len: int(piece.to - piece.from)}
		return ev, span, true, nil
	}
	if ev, ok := r.fact(&p); ok {
		return ev, span, true, nil
	}
	if r.over(&p) {
		r.ended = true
		return process.Event{}, span, false, io.EOF
	}
	r.cur.release() // a waiting reader holds nothing
	return process.Event{}, span, false, nil
}

// fact returns the exit or an end of stream that is due. All output before it
// was delivered.
func (r *reader) fact(p *Progress) (ev process.Event, ok bool) {
	ev.ID = r.id
	if r.sawExit != nil && !r.sentExit && r.reached(&r.exitEnd) {
		r.sentExit = true
		ev.Kind, ev.Exit, ev.Time, ev.PID = process.EventExited, r.sawExit, r.sawExit.Time, p.PID
		if r.opts.Drain > 0 && !r.allEOF(p) && !r.opts.NoFollow {
			r.timer = time.AfterFunc(r.opts.Drain, r.drainEnd)
		} else if r.opts.Drain == 0 || r.opts.NoFollow {
			r.drained = true
		}
		return ev, true
	}
	for s := range r.want {
		if r.want[s] && p.EOF[s] && !r.sentEOF[s] && r.pos[s] >= p.End[s] {
			r.sentEOF[s] = true
			ev.Kind, ev.Stream, ev.Offset = process.EventEOF, process.Stream(s), p.End[s]
			return ev, true
		}
	}
	return ev, false
}

func (r *reader) drainEnd() {
	r.mu.Lock()
	r.drained = true
	r.mu.Unlock()
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// over: nothing more is to be delivered.
func (r *reader) over(p *Progress) bool {
	if r.past {
		return r.reached(&r.stop)
	}
	return r.sentExit && (r.drained || r.allEOF(p))
}

func (r *reader) reached(end *[4]int64) bool {
	for s := range r.want {
		if r.want[s] && r.pos[s] < end[s] {
			return false
		}
	}
	return true
}

func (r *reader) allEOF(p *Progress) bool {
	for s := range r.want {
		if r.want[s] && !(p.EOF[s] && r.pos[s] >= p.End[s]) {
			return false
		}
	}
	return true
}

// remove ends the reader where it stands.
func (r *reader) remove() {
	r.src = finished{Progress{Removed: true, Base: r.pos, End: r.pos, EOF: [4]bool{true, true, true, true}}}
	r.drained, r.sentExit, r.stop = true, true, r.pos
	r.sentEOF = [4]bool{true, true, true, true}
	r.cur.at, r.cur.i, r.cur.n = 0, 0, 0
}

// file opens a stream's data at need.
func (r *reader) file(s process.Stream) error {
	if r.files[s] != nil {
		return nil
	}
	f, err := open(r.dir, FileName(s), os.O_RDONLY)
	r.files[s] = f
	if err != nil {
		r.files[s] = nil
	}
	return err
}

// release gives the last event's data back.
func (r *reader) release() {
	if r.buf != nil {
		r.buf.giveBack()
		r.buf = nil
	}
}
