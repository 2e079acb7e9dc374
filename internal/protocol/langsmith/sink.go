package langsmith

import (
	"context"
	"encoding/base64"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/langsmith/transcode"
	"github.com/tend-run/tend/process"
)

const (
	// chunkSize is the most raw bytes in one frame. All of them could be
	// control characters: 128 KiB become 768 KiB then, and a frame stays
	// below the 1 MiB that Python's websockets accepts.
	chunkSize = 128 << 10
	// frameOverhead is what a frame has besides its data, at most.
	frameOverhead = 128
	// smallRaw is how many raw bytes have a small buffer, which is not charged for.
	smallRaw = 2 << 10
	// usualFrame is room for a frame of text; larger buffers are not kept.
	usualFrame = chunkSize + chunkSize/4 + frameOverhead
)

var (
	frames = sync.Pool{New: func() any { b := make([]byte, 0, usualFrame); return &b }}
	smalls = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}
)

// sink is the [protocol.Sink] of one connection: it turns output into frames.
type sink struct {
	ctx     context.Context // of the session that owns the sink
	ws      *websocket.Conn
	proc    process.Process
	streams [4]*outStream
	exit    *process.Exit
	ping    func()
	held    budget.Charge // for the frame that the client takes
}

// outStream is where one connection stands in one stream.
type outStream struct {
	stream process.Stream
	m      *textMap
	at     transcode.Point // what was sent, or held back
	skip   int64           // text offset before which nothing is sent: it was beyond the end
	held   [3]byte         // raw bytes that may become a character
	nheld  int
}

// Event implements [protocol.Sink].
func (s *sink) Event(ev process.Event, _ protocol.Output) error {
	switch ev.Kind {
	case process.EventOutput:
		return s.output(s.streams[ev.Stream], ev.Data, false)
	case process.EventEOF:
		if st := s.streams[ev.Stream]; st != nil {
			return s.output(st, nil, true)
		}
	case process.EventGap:
		return s.gap(ev.Gap)
	case process.EventExited:
		s.exit = ev.Exit // sent after the output behind it
	}
	return nil
}

// output sends raw bytes. end: no more can come, so what was held back is no
// character.
func (s *sink) output(st *outStream, raw []byte, end bool) error {
	if st == nil {
		return nil
	}
	if st.nheld > 0 {
		joined := make([]byte, 0, st.nheld+len(raw))
		raw = append(append(joined, st.held[:st.nheld]...), raw...)
		st.nheld = 0
	}
	whole := len(raw)
	if !end {
		whole = transcode.Settled(raw)
		st.nheld = copy(st.held[:], raw[whole:])
	}
	return s.send(st, raw[:whole], true)
}

// finish sends what is held back of streams that a process still holds open. It goes
// into no map: the missing bytes may come.
func (s *sink) finish() error {
	for _, st := range s.streams {
		if st == nil || st.nheld == 0 {
			continue
		}
		n := st.nheld
		st.nheld = 0
		if err := s.send(st, st.held[:n], false); err != nil {
			return err
		}
	}
	return nil
}

// send sends whole characters: in one frame that is charged for until the client has taken
// it, or, where the budget has no room for that, in small ones.
func (s *sink) send(st *outStream, raw []byte, settled bool) error {
	if st.at.Text() < st.skip {
		raw = st.pass(raw, settled)
	}
	if len(raw) == 0 {
		return nil
	}
	pool := &frames
	if len(raw) <= smallRaw {
		pool = &smalls
	}
	buf := pool.Get().(*[]byte)
	b := append((*buf)[:0], `{"type":"`...)
	b = append(b, nameOf(st.stream)...)
	b = append(b, `","offset":`...)
	b = strconv.AppendInt(b, st.at.Text(), 10)
	b = append(b, `,"data":"`...)
	b, replaced := transcode.AppendJSON(b, raw)
	b = append(b, `"}`...)
	if len(raw) > smallRaw {
		if s.held.Add(int64(cap(b))) != nil {
			pool.Put(buf)
			return s.sendSmall(st, raw, settled)
		}
		defer s.held.Release()
	}
	if settled {
		st.m.add(st.at.Raw, raw, replaced)
	}
	st.at.Raw += int64(len(raw))
	st.at.Replaced += int64(replaced)
	err := s.ws.Write(context.Background(), websocket.MessageText, b)
	if cap(b) <= 2*usualFrame {
		*buf = b
		pool.Put(buf)
	}
	return err
}

// sendSmall sends whole characters in frames that are not charged for.
func (s *sink) sendSmall(st *outStream, raw []byte, settled bool) error {
	for len(raw) > 0 {
		n := len(raw)
		if n > smallRaw {
			n = transcode.Settled(raw[:smallRaw])
		}
		if err := s.send(st, raw[:n], settled); err != nil {
			return err
		}
		raw = raw[n:]
	}
	return nil
}

// pass leaves out what is before st.skip, as far as whole characters go, and
// returns the rest.
func (st *outStream) pass(raw []byte, settled bool) []byte {
	n, replaced := 0, 0
	for n < len(raw) {
		r, size := utf8.DecodeRune(raw[n:])
		width := size
		if r == utf8.RuneError && size == 1 {
			width += transcode.Grown
		}
		if st.at.Text()+int64(n+replaced*transcode.Grown+width) > st.skip {
			st.skip = 0 // within this character
			break
		}
		if n += size; width != size {
			replaced++
		}
	}
	if settled && n > 0 {
		st.m.add(st.at.Raw, raw[:n], replaced)
	}
	st.at.Raw += int64(n)
	st.at.Replaced += int64(replaced)
	return raw[n:]
}

// gap ends the stream: a client that continues would treat the rest as the whole.
func (s *sink) gap(g process.Gap) error {
	st := s.streams[g.Stream]
	if st == nil {
		return nil
	}
	to, err := st.m.afterGap(s.ctx, s.proc, g.Stream, g.To)
	if err != nil {
		return err
	}
	return gapError(g.Stream, st.at.Text(), to.Text())
}

// Flush implements [protocol.Sink]: each frame is sent at once.
func (s *sink) Flush() error { return nil }

// Keepalive implements [protocol.Sink].
func (s *sink) Keepalive() error {
	s.ping()
	return nil
}

// nameOf is the stream's name on the wire: a terminal's output is stdout.
func nameOf(s process.Stream) string {
	if s == process.Stderr {
		return "stderr"
	}
	return "stdout"
}

// appendObject appends names and values in turn as a JSON object. A value is a string,
// an int64, or bytes, which become base64.
func appendObject(b []byte, pairs ...any) []byte {
	sep := byte('{')
	for i := 0; i < len(pairs); i += 2 {
		b = append(appendString(append(b, sep), pairs[i].(string)), ':')
		switch v := pairs[i+1].(type) {
		case string:
			b = appendString(b, v)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case []byte:
			b = append(base64.StdEncoding.AppendEncode(append(b, '"'), v), '"')
		}
		sep = ','
	}
	return append(b, '}')
}

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	b, _ = transcode.AppendJSON(b, []byte(s))
	return append(b, '"')
}
