package distant

import (
	"context"
	"errors"
	"fmt"

	"github.com/tend-run/tend/internal/protocol/distant/journal"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/process"
)

// catchUp sends the frames after the one that the client got last, as they were
// numbered, and goes live when there are no more. Answers that become ready
// meanwhile are noted and sent in their turn.
func (s *session) catchUp(ctx context.Context, conn *secure.Conn, got uint64) error {
	again := &replay{s: s, ctx: ctx, conn: conn, readers: map[readerKey]*rangeReader{}}
	defer again.close()
	for {
		s.send.Lock()
		s.journal.Lock()
		sent := s.log.State().Sent
		s.journal.Unlock()
		if got == sent {
			s.goLive(conn)
			s.send.Unlock()
			return nil
		}
		s.send.Unlock()
		if got > sent {
			return fmt.Errorf("%w: the client has got frame %d, and %d is the last that was sent", journal.ErrForgotten, got, sent)
		}
		if err := s.log.Frames(got, sent, again.frame); err != nil {
			return err
		}
		got = sent
	}
}

// replay makes frames again.
type replay struct {
	s       *session
	ctx     context.Context // of the one call of catchUp that it lives for
	conn    *secure.Conn
	readers map[readerKey]*rangeReader
}

type readerKey struct {
	slot   uint32
	stream process.Stream
}

func (r *replay) close() {
	for _, reader := range r.readers {
		reader.close()
	}
}

func (r *replay) frame(rec journal.Record) error {
	switch rec.Kind {
	case journal.KindHeartbeat:
		return r.conn.WriteFrame(nil)
	case journal.KindOutput:
		return r.output(rec)
	}
	return r.conn.WriteFrame(rec.Data)
}

// output makes a frame of output from the spool. If the bytes are gone, the
// frame is an error that says so: its number must not be missing.
func (r *replay) output(rec journal.Record) error {
	r.s.journal.Lock()
	js, ok := r.s.log.State().Streams[rec.Slot]
	r.s.journal.Unlock()
	st := &stream{slot: rec.Slot, id: js.Number, origin: origin{id: js.Origin}}
	buf := outputHead(make([]byte, secure.Head, secure.Head+512+int(rec.Length)+secure.Tail), st, rec.Stream, rec.Offset, int(rec.Length))
	at := len(buf)
	buf = append(buf, make([]byte, rec.Length)...)
	err := process.ErrNotFound
	if ok {
		err = r.read(js.Process, rec, buf[at:])
	}
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	if err != nil {
		w := wire.NewPack(make([]byte, secure.Head, 512))
		f := faultf(kindUnexpectedEOF, "bytes %d to %d of %s of process %d cannot be sent again: %v",
			rec.Offset, rec.Offset+int64(rec.Length), dataType(rec.Stream), js.Number, err)
		putEnvelope(w, fmt.Sprint(rec.Frame), js.Origin, func() { putMessage(w, f) })
		buf = w.Buffer()
	}
	_, err = r.conn.Write(r.conn.Seal(buf))
	return err
}

func (r *replay) read(id process.ID, rec journal.Record, dst []byte) error {
	key := readerKey{rec.Slot, rec.Stream}
	reader := r.readers[key]
	if reader == nil || reader.at != rec.Offset {
		if reader != nil {
			reader.close()
			delete(r.readers, key)
		}
		p, err := r.s.native.face.manager.Get(r.ctx, process.Selector{ID: id})
		if err != nil {
			return err
		}
		reader = &rangeReader{at: rec.Offset}
		opts := process.ReadOptions{Streams: []process.Stream{rec.Stream}, MaxChunk: maxChunk, Drain: drainAfterExit}
		opts.From[rec.Stream] = rec.Offset
		if reader.r, err = p.Read(r.ctx, opts); err != nil {
			return err
		}
		r.readers[key] = reader
	}
	return reader.fill(r.ctx, dst)
}

// rangeReader reads one stream in pieces of any size.
type rangeReader struct {
	r    process.Reader
	at   int64 // offset of rest[0]
	rest []byte
}

func (r *rangeReader) close() { r.r.Close() }

var errNoBytes = errors.New("the stream ends before them")

// fill fills dst with the next bytes.
func (r *rangeReader) fill(ctx context.Context, dst []byte) error {
	for len(dst) > 0 {
		if len(r.rest) > 0 {
			n := copy(dst, r.rest)
			dst, r.rest = dst[n:], r.rest[n:]
			r.at += int64(n)
			continue
		}
		ev, ok, err := r.r.Next()
		switch {
		case err != nil:
			return errors.Join(errNoBytes, err)
		case !ok:
			select {
			case <-r.r.Ready():
			case <-ctx.Done():
				return ctx.Err()
			}
		case ev.Kind == process.EventGap:
			return &process.GapError{Gap: ev.Gap}
		case ev.Kind == process.EventOutput:
			// The bytes are the reader's until its next call, which comes when
			// they are used up.
			r.rest = ev.Data
		case ev.Kind == process.EventExited, ev.Kind == process.EventStarted:
		case ev.Kind == process.EventEOF, ev.Kind == process.EventRemoved:
			return errNoBytes
		}
	}
	return nil
}
