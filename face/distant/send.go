package distant

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/tend-run/tend/face"
	"github.com/tend-run/tend/face/distant/journal"
	"github.com/tend-run/tend/face/distant/secure"
	"github.com/tend-run/tend/face/distant/wire"
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
func (s *session) number(make func(frame uint64) journal.Record) (journal.Record, error) {
	s.journal.Lock()
	defer s.journal.Unlock()
	r := make(s.log.State().Sent + 1)
	return r, s.append(r)
}

// write sends what was noted. An error is the connection's, which ends with it;
// the frame comes again when the client resumes. s.send is held.
func (s *session) write(sealed []byte) {
	if _, err := s.conn.Write(sealed); err != nil {
		s.hangUp()
	}
}

// message notes a message and sends it, if a client is connected.
func (s *session) message(request uint64, put func(w wire.Writer, id string)) error {
	s.send.Lock()
	defer s.send.Unlock()
	return s.messageLocked(request, put)
}

func (s *session) messageLocked(request uint64, put func(w wire.Writer, id string)) error {
	var buf []byte
	_, err := s.number(func(frame uint64) journal.Record {
		w := wire.NewPack(make([]byte, secure.Head, 512))
		put(w, strconv.FormatUint(frame, 10))
		buf = w.Buffer()
		return journal.Record{Kind: journal.KindMessage, Frame: frame, Request: request, Data: buf[secure.Head:]}
	})
	if err != nil {
		return err
	}
	if s.conn != nil {
		s.write(s.conn.Seal(buf))
	}
	return nil
}

// answer sends the answer to the frame of that number, or keeps it for the
// client's return.
func (s *session) answer(request uint64, p *packet, a *answer) error {
	err := s.message(request, func(w wire.Writer, id string) {
		putEnvelope(w, id, p.origin.id, func() { a.put(w, p.batch) })
	})
	if err == nil {
		a.sent()
	}
	return err
}

// event implements [outlet].
func (s *session) event(o origin, m message) error {
	s.send.Lock()
	defer s.send.Unlock()
	if s.conn == nil {
		return errAway
	}
	return s.messageLocked(0, func(w wire.Writer, id string) {
		putEnvelope(w, id, o.id, func() { m.put(w) })
	})
}

// done implements [outlet].
func (s *session) done(st *stream, exit *process.Exit) error {
	s.send.Lock()
	defer s.send.Unlock()
	if s.conn == nil {
		return errAway
	}
	var buf []byte
	_, err := s.number(func(frame uint64) journal.Record {
		w := wire.NewPack(make([]byte, secure.Head, 256))
		putEnvelope(w, strconv.FormatUint(frame, 10), st.origin.id, func() { doneMessage{st.id, exit}.put(w) })
		buf = w.Buffer()
		return journal.Record{Kind: journal.KindDone, Frame: frame, Slot: st.slot, Data: buf[secure.Head:]}
	})
	if err == nil {
		s.write(s.conn.Seal(buf))
	}
	return err
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
		begin(w, dataType(stream), 2)
		w.Key("id").Uint(uint64(st.id))
		w.Key("data")
	})
	return wire.AppendBinHead(w.Buffer(), n)
}

// output implements [outlet]. The bytes go from the spool into the frame, are
// encrypted where they are, and are sent; only numbering and sending exclude
// other streams.
func (s *session) output(st *stream, ev process.Event, out face.Output) error {
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
	_, err := s.number(func(frame uint64) journal.Record {
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
			_, err := s.number(func(frame uint64) journal.Record {
				return journal.Record{Kind: journal.KindHeartbeat, Frame: frame}
			})
			if err == nil {
				s.write(s.conn.Seal(make([]byte, secure.Head, secure.Head+secure.Tail)))
			}
		}
		s.send.Unlock()
	}
}

// started implements [keyed].
func (s *session) started(st *stream, c call, own bool) {
	s.journal.Lock()
	defer s.journal.Unlock()
	if s.closed {
		return
	}
	// If it cannot be noted, the answer cannot either, and the session ends.
	_ = s.log.AppendStream(journal.Stream{
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
	err := s.log.AppendWrite(journal.Write{Process: id, Request: c.frame, Index: uint32(c.index), Offset: offset, Length: int64(size), Turn: turn})
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
func (s *session) watching(w journal.Watch) {
	s.journal.Lock()
	defer s.journal.Unlock()
	if !s.closed {
		// If it cannot be noted, the answer cannot either.
		_ = s.log.AppendWatch(w)
	}
}

// searching implements [keyed].
func (s *session) searching(js journal.Search) {
	s.journal.Lock()
	defer s.journal.Unlock()
	if !s.closed {
		// If it cannot be noted, the answer cannot either.
		_ = s.log.AppendSearch(js)
	}
}
