package distant

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/process"
)

// stream is the output of one process on its way to one client.
type stream struct {
	slot   uint32          // names the stream within its client
	id     uint32          // of the process, as clients know it
	proc   process.Process // nil: it is not known any more
	origin origin
	pty    bool
	// next are the offsets from which output is still to be sent. They belong
	// to the run, and to its outlet; the outlet moves them on.
	next [4]int64
}

// retryAfter is how long a stream waits before it looks for its process again
// when the runtime could not be reached.
const retryAfter = 200 * time.Millisecond

// run implements [source]: output, then proc_done.
func (st *stream) run(ctx context.Context, c *client) bool {
	for {
		exit, err := st.pump(ctx, c.out)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, errSend):
			return false // the connection is gone, and ctx ends with it
		case errors.Is(err, errFreed):
			continue
		case errors.Is(err, process.ErrUnavailable):
			select {
			case <-time.After(retryAfter):
				continue
			case <-ctx.Done():
				return false
			}
		case err != nil && !errors.Is(err, process.ErrNotFound):
			if c.out.event(st.origin, faultf(kindOther, "the output of process %d cannot be read: %v", st.id, err)) != nil {
				return false
			}
		}
		c.mu.Lock()
		if c.streams[st.id] == st {
			delete(c.streams, st.id)
		}
		c.mu.Unlock()
		return c.out.done(st, exit) == nil
	}
}

// errSend marks errors of the connection, as opposed to those of the process.
var errSend = errors.New("the connection is gone")

func (st *stream) pump(ctx context.Context, out outlet) (*process.Exit, error) {
	if st.proc == nil {
		return nil, process.ErrNotFound
	}
	r, err := st.proc.Read(ctx, process.ReadOptions{From: st.next, Drain: drainAfterExit, MaxChunk: maxChunk})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	sink := &sink{st: st, out: out}
	err = protocol.Stream(ctx, r, sink, 0)
	return sink.exit, err
}

// maxChunk is the most output of one message, in bytes. Messages of this size
// cost little per byte, and still fit the second-level cache while they are
// encoded and encrypted.
const maxChunk = 128 << 10

// sink is the [protocol.Sink] of a stream.
type sink struct {
	st   *stream
	out  outlet
	exit *process.Exit
}

// WantsSpans implements [protocol.SpanSink]: output is read from the spool into
// the message itself.
func (s *sink) WantsSpans() (int, bool) { return maxChunk, true }

func (s *sink) Event(ev process.Event, out protocol.Output) error {
	var err error
	switch ev.Kind {
	case process.EventOutput:
		err = s.out.output(s.st, ev, out)
	case process.EventGap:
		g := ev.Gap
		s.st.next[g.Stream] = g.To
		err = s.out.event(s.st.origin, faultf(kindUnexpectedEOF,
			"bytes %d to %d of %s of process %d were freed by retention before this client read them", g.From, g.To, dataType(g.Stream), s.st.id))
	case process.EventExited:
		s.exit = ev.Exit
	}
	if err != nil && !errors.Is(err, errFreed) {
		return errors.Join(errSend, err)
	}
	return err
}

func (s *sink) Flush() error     { return nil } // every message is sent at once
func (s *sink) Keepalive() error { return nil }

// errFreed: retention freed bytes while they were being copied. The reader
// reports the gap when it is opened again.
var errFreed = errors.New("output was freed by retention while it was being sent")

// chunkInto copies the bytes of an output event to b, which has room for
// chunkLen(ev, out) bytes.
func chunkInto(b []byte, ev process.Event, out protocol.Output) error {
	if out.Span.File == nil {
		copy(b, ev.Data)
		return nil
	}
	if _, err := out.Span.File.ReadAt(b, out.Span.Offset); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !out.Valid(ev) {
		return errFreed
	}
	return nil
}

func chunkLen(ev process.Event, out protocol.Output) int {
	if out.Span.File == nil {
		return len(ev.Data)
	}
	return out.Span.Len
}
