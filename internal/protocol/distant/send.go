package distant

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/distant/journal"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/process"
)

var (
	// errLog: the journal cannot be written. The session could not be resumed
	// without a gap, so it ends; its processes go on.
	errLog = errors.New("the journal of the session cannot be written")
	// errAway: no client is connected.
	errAway = errors.New("the client is not connected")
)

// note appends a record that is no frame.
func (s *session) note(r journal.Record) error {
	s.journal.Lock()
	defer s.journal.Unlock()
	return s.append(r)
}

// append writes to the journal. s.journal is held.
func (s *session) append(r journal.Record) error {
	if s.closed {
		return fmt.Errorf("%w: it is closed", errLog)
	}
	if err := s.log.Append(r); err != nil {
		return fmt.Errorf("%w: %w", errLog, err)
	}
	return nil
}

// number gives the next frame its number and notes it. make gets the number and
// returns the record. s.send is held.
func (s *session) number(make func(frame uint64) journal.Record) error {
	s.journal.Lock()
	defer s.journal.Unlock()
	return s.append(make(s.log.State().Sent + 1))
}

// write sends what was noted. An error is the connection's, which ends with it;
// the frame comes again when the client resumes. s.send is held.
func (s *session) write(sealed []byte) {
	if _, err := s.conn.Write(sealed); err != nil {
		s.hangUp()
	}
}

// message notes a response as the record r, and sends it if a client is connected.
// s.send is held.
func (s *session) message(r journal.Record, origin string, put func(w wire.Writer)) error {
	var buf []byte
	err := s.number(func(frame uint64) journal.Record {
		w := wire.NewPack(make([]byte, secure.Head, 512))
		putEnvelope(w, strconv.FormatUint(frame, 10), origin, func() { put(w) })
		buf = w.Buffer()
		r.Frame, r.Data = frame, buf[secure.Head:]
		return r
	})
	if err == nil && s.conn != nil {
		s.write(s.conn.Seal(buf))
	}
	return err
}

// live is message if a client is connected, and else fails.
func (s *session) live(r journal.Record, o origin, m message) error {
	s.send.Lock()
	defer s.send.Unlock()
	if s.conn == nil {
		return errAway
	}
	return s.message(r, o.id, func(w wire.Writer) { putMessage(w, m) })
}

// answer sends the answer to the frame of that number, or keeps it for the
// client's return.
func (s *session) answer(request uint64, p *packet, a *answer) error {
	s.send.Lock()
	err := s.message(journal.Record{Kind: journal.KindMessage, Request: request}, p.origin.id, func(w wire.Writer) { a.put(w, p.batch) })
	s.send.Unlock()
	if err == nil {
		a.sent()
	}
	return err
}

// event implements [outlet].
func (s *session) event(o origin, m message) error {
	return s.live(journal.Record{Kind: journal.KindMessage}, o, m)
}

// done implements [outlet].
func (s *session) done(st *stream, exit *process.Exit) error {
	return s.live(journal.Record{Kind: journal.KindDone, Slot: st.slot}, st.origin, doneMessage(st.id, exit))
}

// frames are buffers for output.
var frames = sync.Pool{New: func() any {
	b := make([]byte, 0, secure.Head+maxChunk+512+secure.Tail)
	return &b
}}

// outputHead appends what stands in front of the n bytes of an output message.
// The id of the response is the place of the bytes, which is unique.
func outputHead(b []byte, st *stream, stream process.Stream, offset int64, n int) []byte {
	w := wire.NewPack(b)
	id := strconv.AppendUint(make([]byte, 0, 48), uint64(st.slot), 10)
	id = append(id, '.', '0'+byte(stream), '.')
	id = strconv.AppendInt(id, offset, 10)
	putEnvelope(w, string(id), st.origin.id, func() {
		w.Object(3)
		w.Key("type").Str(dataType(stream))
		w.Key("id").Uint(uint64(st.id))
		w.Key("data")
	})
	return wire.AppendBinHead(w.Buffer(), n)
}

// output implements [outlet]. The bytes go from the spool into the frame, are
// encrypted where they are, and are sent; only numbering and sending exclude
// other streams.
func (s *session) output(st *stream, ev process.Event, out protocol.Output) error {
	conn := s.now.Load()
	if conn == nil {
		return errAway
	}
	pooled := frames.Get().(*[]byte)
	defer frames.Put(pooled)
	n := chunkLen(ev, out)
	buf := outputHead((*pooled)[:secure.Head], st, ev.Stream, ev.Offset, n)
	at := len(buf)
	buf = append(buf, make([]byte, n)...)
	if err := chunkInto(buf[at:], ev, out); err != nil {
		return err
	}
	sealed := conn.Seal(buf)
	*pooled = buf[:0]

	s.send.Lock()
	defer s.send.Unlock()
	if s.conn != conn {
		return errAway // it was cut meanwhile; the bytes are in the spool
	}
	err := s.number(func(frame uint64) journal.Record {
		return journal.Record{Kind: journal.KindOutput, Frame: frame, Slot: st.slot, Stream: ev.Stream, Offset: ev.Offset, Length: uint32(n)}
	})
	if err != nil {
		s.hangUp()
		return err
	}
	st.next[ev.Stream] = ev.Offset + int64(n)
	s.write(sealed)
	return nil
}

// beat sends heartbeats, busy or not. They are numbered: clients count them.
func (s *session) beat(ctx context.Context) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.send.Lock()
		if s.conn != nil {
			if s.number(func(frame uint64) journal.Record { return journal.Record{Kind: journal.KindHeartbeat, Frame: frame} }) == nil {
				s.write(s.conn.Seal(make([]byte, secure.Head, secure.Head+secure.Tail)))
			}
		}
		s.send.Unlock()
	}
}

// remember notes a fact of a kind that is kept as JSON. If it cannot be noted, the
// answer cannot either, and the session ends.
func (s *session) remember(kind journal.Kind, fact any) {
	s.journal.Lock()
	defer s.journal.Unlock()
	if !s.closed {
		_ = s.log.AppendJSON(kind, fact)
	}
}

// started implements [keyed].
func (s *session) started(st *stream, c call, own bool) {
	s.remember(journal.KindStream, journal.Stream{
		Slot: st.slot, Number: st.id, Process: st.proc.ID(), Origin: st.origin.id,
		Request: c.frame, PTY: st.pty, Own: own, Next: st.next,
	})
}

// inputAt implements [keyed]. The input of a process is written in the order of
// the requests, so a request before the last noted one was written.
func (s *session) inputAt(c call, id uint32, size int) (at inputPlace, done bool, err error) {
	s.journal.Lock()
	defer s.journal.Unlock()
	state := s.log.State()
	if old, ok := state.Inputs[id]; ok && old.Request == c.frame && old.Index == uint32(c.index) {
		return inputPlace{offset: old.Offset, again: true}, false, nil
	}
	last := state.Writes[id]
	switch {
	case last.Request == c.frame && last.Index == uint32(c.index):
		return inputPlace{s.writer(last.Turn), last.Offset, true}, false, nil
	case !last.Before(c.frame, uint32(c.index)):
		return inputPlace{}, true, nil
	}
	at, err = s.noteWrite(c, id, size, last.Offset+last.Length, last.Turn)
	return at, false, err
}

// inputAnew implements [keyed].
func (s *session) inputAnew(c call, id uint32, size int, written int64, forgotten bool) (inputPlace, error) {
	s.journal.Lock()
	defer s.journal.Unlock()
	turn := s.log.State().Writes[id].Turn
	if forgotten {
		turn, written = turn+1, 0
	}
	return s.noteWrite(c, id, size, written, turn)
}

// noteWrite notes where a request's input goes. s.journal is held.
func (s *session) noteWrite(c call, id uint32, size int, offset int64, turn int) (inputPlace, error) {
	if s.closed {
		return inputPlace{}, errLog
	}
	err := s.log.AppendJSON(journal.KindWrite, journal.Write{Process: id, Request: c.frame, Index: uint32(c.index),
		Offset: offset, Length: int64(size), Turn: turn})
	if err != nil {
		return inputPlace{}, fmt.Errorf("%w: %w", errLog, err)
	}
	return inputPlace{writer: s.writer(turn), offset: offset}, nil
}

// writer returns the name under which the session writes.
func (s *session) writer(turn int) string {
	if turn == 0 {
		return "distant-" + s.nonce
	}
	return "distant-" + s.nonce + "-" + strconv.Itoa(turn%1e6)
}

// watching implements [keyed].
func (s *session) watching(w journal.Watch) { s.remember(journal.KindWatch, w) }

// searching implements [keyed].
func (s *session) searching(js journal.Search) { s.remember(journal.KindSearch, js) }
