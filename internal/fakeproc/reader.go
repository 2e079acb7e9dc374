//go:build linux

package fakeproc

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/tend-run/tend/process"
)

// Bounds of ReadOptions.MaxChunk in bytes.
const (
	defaultChunk = 256 << 10
	maxChunk     = 1 << 20
)

// reader implements process.Reader. The mutex of its process guards it.
type reader struct {
	p     *proc
	opts  process.ReadOptions
	ready chan struct{}

	want    [4]bool
	pos     [4]int64 // next byte to deliver
	stop    [4]int64 // NoFollow: where to end
	at      int      // next arrival to look at, counted from the first ever
	buf     []byte   // of the last event
	facts   bool     // NoFollow: the process had exited when the reader was opened
	ends    [4]bool  // NoFollow: the streams that had ended then
	follows bool

	sentStart, sentExit, sentGone bool
	sentEOF                       [4]bool
	drained                       bool // the time after the exit is over
	timer                         *time.Timer
	closed                        bool
}

// Read implements process.Process.
func (p *proc) Read(_ context.Context, opts process.ReadOptions) (process.Reader, error) {
	r := &reader{p: p, opts: opts, ready: make(chan struct{}, 1)}
	switch {
	case opts.MaxChunk == 0:
		r.opts.MaxChunk = defaultChunk
	case opts.MaxChunk < 1 || opts.MaxChunk > maxChunk:
		return nil, &process.InvalidError{Field: "max_chunk", Reason: fmt.Sprintf("is %d bytes; 1 to %d are allowed, 0 for %d", opts.MaxChunk, maxChunk, defaultChunk)}
	}
	for _, s := range opts.Streams {
		if s < process.Stdout || s > process.PTY {
			return nil, &process.InvalidError{Field: "streams", Reason: fmt.Sprintf("has %s; stdout, stderr and pty can be read", s)}
		}
		r.want[s] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed {
		return nil, fmt.Errorf("%w: id %s", process.ErrNotFound, p.id)
	}
	has := [4]bool{}
	now := true
	for _, o := range p.outputs {
		s := o.stream
		has[s] = true
		if len(opts.Streams) > 0 && !r.want[s] {
			continue
		}
		r.want[s] = true
		from := opts.From[s]
		switch {
		case from == process.FromNow:
			from = o.end()
		case from < 0:
			return nil, &process.InvalidError{Field: "from", Reason: fmt.Sprintf("is %d for %s; 0 or more, or FromNow", from, s)}
		case from > o.end():
			return nil, fmt.Errorf("%w: %s ends at %d, %d was asked for", process.ErrOffset, s, o.end(), from)
		}
		r.pos[s], r.stop[s], r.ends[s] = from, o.end(), o.eof
		now = now && from == o.end()
	}
	for s := range r.want {
		r.want[s] = r.want[s] && has[s]
	}
	if now {
		r.at = p.dropped + len(p.pieces)
	}
	r.facts = p.exit != nil
	if p.readers == nil {
		p.readers = map[*reader]struct{}{}
	}
	p.readers[r] = struct{}{}
	if !opts.NoFollow {
		r.follows = true
		p.followers++
		if p.idle != nil {
			p.idle.Stop()
			p.idle = nil
		}
	}
	return r, nil
}

// wakeReaders tells all readers that there may be more. p.mu is held.
func (p *proc) wakeReaders() {
	for r := range p.readers {
		wake(r.ready)
	}
}

// Ready implements process.Reader.
func (r *reader) Ready() <-chan struct{} { return r.ready }

// Close implements process.Reader.
func (r *reader) Close() error {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	delete(p.readers, r)
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.follows {
		if p.followers--; p.followers == 0 {
			p.armIdle()
		}
	}
	return nil
}

// Next implements process.Reader.
func (r *reader) Next() (process.Event, bool, error) {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	ev := process.Event{ID: p.id, PID: p.pid}
	switch {
	case r.closed || r.sentGone:
		return process.Event{}, false, io.EOF
	case !r.sentStart:
		r.sentStart = true
		ev.Kind, ev.Time = process.EventStarted, p.started
		return ev, true, nil
	case p.removed:
		r.sentGone = true
		ev.Kind, ev.Time = process.EventRemoved, time.Now()
		return ev, true, nil
	}
	exited := p.exit != nil && (!r.opts.NoFollow || r.facts)
	if exited && !r.sentExit && r.reached(&p.exitEnd) {
		r.sentExit = true
		r.startDrain()
		ev.Kind, ev.Exit, ev.Time = process.EventExited, p.exit, p.exit.Time
		return ev, true, nil
	}
	if r.output(&ev) {
		return ev, true, nil
	}
	for _, o := range p.outputs {
		s := o.stream
		if r.want[s] && o.eof && (!r.opts.NoFollow || r.ends[s]) && !r.sentEOF[s] && r.pos[s] >= o.end() {
			r.sentEOF[s] = true
			ev.Kind, ev.Stream, ev.Offset = process.EventEOF, s, o.end()
			return ev, true, nil
		}
	}
	if r.over(exited) {
		return process.Event{}, false, io.EOF
	}
	return process.Event{}, false, nil
}

// startDrain begins the time after the exit. p.mu is held.
func (r *reader) startDrain() {
	switch d := r.opts.Drain; {
	case d == 0 || r.opts.NoFollow:
		r.drained = true
	case d > 0:
		r.timer = time.AfterFunc(d, func() {
			r.p.mu.Lock()
			r.drained = true
			r.p.mu.Unlock()
			wake(r.ready)
		})
	}
}

// over: nothing more is to be delivered. p.mu is held.
func (r *reader) over(exited bool) bool {
	if r.opts.NoFollow && !exited {
		return r.reached(&r.stop)
	}
	if !r.sentExit {
		return false
	}
	for _, o := range r.p.outputs {
		if r.want[o.stream] && !r.sentEOF[o.stream] {
			return r.drained
		}
	}
	return true
}

func (r *reader) reached(end *[4]int64) bool {
	for s := range r.want {
		if r.want[s] && r.pos[s] < end[s] {
			return false
		}
	}
	return true
}

// limit is how far a stream is delivered. p.mu is held.
func (r *reader) limit(o *output) int64 {
	end := o.end()
	if r.opts.NoFollow {
		end = min(end, r.stop[o.stream])
	}
	if r.drained && !o.eof {
		end = min(end, max(r.p.exitEnd[o.stream], r.pos[o.stream]))
	}
	return end
}

// output fills in the next output or gap, if there is one. p.mu is held.
func (r *reader) output(ev *process.Event) bool {
	p := r.p
	if r.opts.Unordered {
		for _, o := range p.outputs {
			if r.cut(ev, o, o.end(), time.Time{}) {
				return true
			}
		}
		return false
	}
	for r.at = max(r.at, p.dropped); r.at < p.dropped+len(p.pieces); r.at++ {
		pc := p.pieces[r.at-p.dropped]
		if r.cut(ev, p.output(pc.stream), pc.to, pc.time) {
			return true
		}
		if o := p.output(pc.stream); r.want[pc.stream] && r.pos[pc.stream] < pc.to && r.limit(o) < pc.to {
			break // not ours to deliver (yet)
		}
	}
	// What was freed together with its arrivals is told all the same.
	for _, o := range p.outputs {
		if r.want[o.stream] && r.pos[o.stream] < o.base && r.cut(ev, o, o.end(), time.Time{}) {
			return true
		}
	}
	return false
}

// cut delivers bytes of a stream up to an end, or the gap at its position.
func (r *reader) cut(ev *process.Event, o *output, end int64, at time.Time) bool {
	s := o.stream
	from := r.pos[s]
	if !r.want[s] || from >= min(end, r.limit(o)) {
		return false
	}
	ev.Stream, ev.Offset = s, from
	if from < o.base {
		ev.Kind, ev.Gap = process.EventGap, process.Gap{Stream: s, From: from, To: o.base}
		r.pos[s] = o.base
		return true
	}
	end = min(end, r.limit(o), from+int64(r.opts.MaxChunk))
	r.buf = append(r.buf[:0], o.data[from-o.base:end-o.base]...)
	ev.Kind, ev.Data, ev.Time = process.EventOutput, r.buf, at
	r.pos[s] = end
	return true
}
