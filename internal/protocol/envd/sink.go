package envd

import (
	"fmt"
	"sync"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/process"
)

const (
	// chunkSize is the most output that one data event carries when there is
	// a backlog. Frames of this size cost little per byte and still fit the
	// second-level cache together with their encoded form. It is a multiple
	// of 3, so that base64 has no padding.
	chunkSize = 3 * 40 << 10
	// batchSize bounds the small events that are gathered into one write. It
	// is what a stalled reader holds at most.
	batchSize = 16 << 10
	// largeEvent is the output from which an event is sent by itself.
	largeEvent = 6 << 10
	// chunkRoom is kept free in front of a buffer for the chunk-size line of
	// HTTP/1.1: 8 hexadecimal digits, CR, LF.
	chunkRoom = 10
	// chunkTail is kept free behind it: CR LF, and the last chunk.
	chunkTail = len("\r\n0\r\n\r\n")
)

// frameSize is room for a frame.
const frameSize = chunkRoom + (chunkSize+2)/3*4 + maxDataOverhead + chunkTail

// buffer is a pooled write buffer. b begins with chunkRoom bytes of room.
type buffer struct{ b []byte }

var (
	frames = sync.Pool{New: func() any {
		return &buffer{b: make([]byte, chunkRoom, frameSize)}
	}}
	batches = sync.Pool{New: func() any {
		return &buffer{b: make([]byte, chunkRoom, chunkRoom+batchSize+chunkTail)}
	}}
	raws = sync.Pool{New: func() any { return &buffer{b: make([]byte, chunkSize)} }}
)

// outlet is where frames go: a connection of our own or an http.ResponseWriter.
type outlet interface {
	// batch sends buf, whose first chunkRoom bytes are free, and does not keep
	// it. more says that more follows at once. It ends the response if last.
	batch(buf []byte, more, last bool) error
	// piece returns how many of n bytes of output the next frame is to carry
	// (encoded, they take len bytes), at least 1. It may wait for the reader.
	piece(n int, len func(n int) int) (int, error)
	// frame sends one large data event, or nothing of it. It may call enc again
	// to get the same bytes once more, so that a stalled reader need not hold them.
	frame(enc *frameEncoder) error
}

// promptOutlet is an outlet that can send without waiting.
type promptOutlet interface {
	outlet
	// clear reports that nothing of what was sent before is kept.
	clear() bool
	// now is batch, but keeps what cannot be sent at once.
	now(buf []byte)
	// settle sends what is kept, and waits.
	settle() error
}

// frameSink is the [protocol.Sink] of the hot path.
type frameSink struct {
	codec codec
	out   outlet
	buf   *buffer // nil when nothing is pending
	exit  *process.Exit
	// started has seen the start event.
	started bool
}

func (s *frameSink) WantsSpans() (int, bool) { return chunkSize, true }

// Event implements [protocol.Sink].
func (s *frameSink) Event(ev process.Event, out protocol.Output) error {
	switch ev.Kind {
	case process.EventStarted:
		s.started = true
		if err := s.room(64); err != nil {
			return err
		}
		s.buf.b = s.codec.appendStart(s.buf.b, ev.PID)
		return s.Flush() // the client waits for the pid
	case process.EventOutput:
		return s.output(ev, out)
	case process.EventGap:
		return gapError(ev.Gap)
	case process.EventExited:
		s.exit = ev.Exit // sent after the output behind it
	}
	return nil
}

func (s *frameSink) output(ev process.Event, out protocol.Output) error {
	n := len(ev.Data)
	if out.Span.File != nil {
		n = out.Span.Len
	}
	if n == 0 || ev.Stream < process.Stdout || ev.Stream > process.PTY {
		return nil
	}
	if n >= largeEvent {
		if s.buf != nil {
			if err := s.write(true, false); err != nil {
				return err
			}
		}
		return s.large(ev, out, n)
	}
	if err := s.room(maxDataOverhead + s.codec.payloadLen(n)); err != nil {
		return err
	}
	data := ev.Data
	if out.Span.File != nil {
		raw := raws.Get().(*buffer)
		defer raws.Put(raw)
		var err error
		if data, err = readSpan(raw.b, ev, out); err != nil {
			return err
		}
	}
	s.buf.b = s.codec.appendData(s.buf.b, ev.Stream, data)
	return nil
}

// large sends one event by itself, in pieces of at most chunkSize.
func (s *frameSink) large(ev process.Event, out protocol.Output, n int) error {
	enc := frameEncoder{codec: s.codec}
	for from, to := 0, 0; from < n; from = to {
		size, err := s.out.piece(min(n-from, chunkSize), s.codec.payloadLen)
		if err != nil {
			return err
		}
		to = from + size
		enc.ev, enc.out = ev, out
		enc.ev.Offset += int64(from)
		if out.Span.File != nil {
			enc.out.Span.Offset += int64(from)
			enc.out.Span.Len = to - from
		} else {
			enc.ev.Data = ev.Data[from:to]
		}
		if err := s.out.frame(&enc); err != nil {
			return err
		}
	}
	return nil
}

// room makes sure that n more bytes can be appended to the batch.
func (s *frameSink) room(n int) error {
	if s.buf != nil && len(s.buf.b)+n+chunkTail > cap(s.buf.b) {
		if err := s.write(true, false); err != nil {
			return err
		}
	}
	if s.buf == nil {
		s.buf = batches.Get().(*buffer)
		s.buf.b = s.buf.b[:chunkRoom]
	}
	return nil
}

// Flush implements [protocol.Sink].
func (s *frameSink) Flush() error {
	if s.buf == nil {
		if o, ok := s.out.(promptOutlet); ok && !o.clear() {
			return o.settle()
		}
		return nil
	}
	return s.write(false, false)
}

// WantsPrompt implements [protocol.PromptSink].
func (s *frameSink) WantsPrompt() (int, bool) {
	_, ok := s.out.(promptOutlet)
	return largeEvent - 1, ok && canPrompt
}

// Clear implements [protocol.PromptSink].
func (s *frameSink) Clear() bool { return s.buf == nil && s.out.(promptOutlet).clear() }

// Prompt implements [protocol.PromptSink]. Bytes that are not in memory any more are
// left to Event, which may wait for the disk.
func (s *frameSink) Prompt(ev process.Event, out protocol.Output) bool {
	if out.Span.Len == 0 || out.Span.Len >= largeEvent || ev.Stream < process.Stdout || ev.Stream > process.PTY {
		return false
	}
	raw, buf := raws.Get().(*buffer), batches.Get().(*buffer)
	defer raws.Put(raw)
	defer batches.Put(buf)
	data := raw.b[:out.Span.Len]
	if !readCached(out.Span, data) || !out.Valid(ev) {
		return false
	}
	s.out.(promptOutlet).now(s.codec.appendData(buf.b[:chunkRoom], ev.Stream, data))
	return true
}

// Keepalive implements [protocol.Sink].
func (s *frameSink) Keepalive() error {
	if err := s.room(64); err != nil {
		return err
	}
	s.buf.b = s.codec.appendKeepalive(s.buf.b)
	return s.Flush()
}

// finish ends the response: with the end event if the process has exited and
// err is nil, then with the trailer.
func (s *frameSink) finish(err *connect.Error) error {
	trailer := s.codec.appendTrailer(nil, err)
	if rerr := s.room(512 + len(trailer)); rerr != nil {
		return rerr
	}
	if err == nil && s.exit != nil {
		s.buf.b = s.codec.appendEnd(s.buf.b, s.exit)
	}
	s.buf.b = append(s.buf.b, trailer...)
	return s.write(false, true)
}

func (s *frameSink) write(more, last bool) error {
	buf := s.buf
	s.buf = nil
	err := s.out.batch(buf.b, more, last)
	if cap(buf.b) <= chunkRoom+2*batchSize { // a very long error text may have grown it
		batches.Put(buf)
	}
	return err
}

// frameEncoder makes the bytes of one large data event, any number of times.
type frameEncoder struct {
	codec codec
	ev    process.Event
	out   protocol.Output
}

func (e *frameEncoder) len() int {
	if e.out.Span.File != nil {
		return e.out.Span.Len
	}
	return len(e.ev.Data)
}

// encode returns the frame in a pooled buffer, which the caller puts back.
func (e *frameEncoder) encode() (*buffer, error) {
	buf := frames.Get().(*buffer)
	n := e.len()
	b := e.codec.appendDataHead(buf.b[:chunkRoom], e.ev.Stream, n)
	at := len(b)
	b = b[:at+e.codec.payloadLen(n)]
	switch {
	case e.codec == codecProto && e.out.Span.File != nil:
		if _, err := readSpan(b[at:], e.ev, e.out); err != nil {
			frames.Put(buf)
			return nil, err
		}
	case e.codec == codecProto:
		copy(b[at:], e.ev.Data)
	case e.out.Span.File != nil:
		raw := raws.Get().(*buffer)
		data, err := readSpan(raw.b, e.ev, e.out)
		if err == nil {
			base64Std.Encode(b[at:], data)
		}
		raws.Put(raw)
		if err != nil {
			frames.Put(buf)
			return nil, err
		}
	default:
		base64Std.Encode(b[at:], e.ev.Data)
	}
	buf.b = e.codec.appendDataTail(b)
	return buf, nil
}

// readSpan copies the span of ev into b and checks that retention did not
// free it meanwhile.
func readSpan(b []byte, ev process.Event, out protocol.Output) ([]byte, error) {
	b = b[:out.Span.Len]
	_, err := out.Span.File.ReadAt(b, out.Span.Offset)
	switch {
	case !out.Valid(ev): // whatever was read
		return nil, freed(ev, out)
	case err != nil:
		return nil, fmt.Errorf("read the spool at %s:%d: %w", ev.Stream, ev.Offset, err)
	}
	return b, nil
}

// freed is the error for a span that retention freed before it was sent.
func freed(ev process.Event, out protocol.Output) error {
	return &process.GapError{Gap: process.Gap{Stream: ev.Stream, From: ev.Offset, To: ev.Offset + int64(out.Span.Len)}}
}
