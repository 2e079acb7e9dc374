package langsmith

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// heartbeat is the longest silence of a stream of events; its client gives up
// after a minute.
const heartbeat = 15 * time.Second

// kindStopping is what a client of events takes for a reason to resume.
const kindStopping = "ServerShuttingDown"

// startEvents finds or starts a command, and streams it from its beginning as
// server-sent events: POST /execute/stream/start.
func (f *Face) startEvents(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxMessage)
	m := new(message)
	if err := decode(r, m); err != nil {
		return err
	}
	if m.PTY || m.KillOnDisconnect {
		return requestErrorf("pty and kill_on_disconnect need the WebSocket, which lasts as long as the command")
	}
	m.CloseStdin = true // nothing can be sent
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	budget.Of(r.Context()).For(budget.Sandbox(info.ID))
	p, command, err := f.execute(r.Context(), box, &info, m)
	if err != nil {
		return err
	}
	return f.streamEvents(w, r, p, command, [4]int64{})
}

// resumeEvents continues with a command: POST /execute/stream/resume.
func (f *Face) resumeEvents(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxMessage)
	m := new(message)
	if err := decode(r, m); err != nil {
		return err
	}
	if m.StdoutOffset < 0 || m.StderrOffset < 0 {
		return requestErrorf("stdout_offset or stderr_offset is negative; offsets count from 0")
	}
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	budget.Of(r.Context()).For(budget.Sandbox(info.ID))
	p, err := f.find(r.Context(), box, &info, m.CommandID)
	if err != nil {
		return err
	}
	var from [4]int64
	from[process.Stdout], from[process.Stderr], from[process.PTY] = m.StdoutOffset, m.StderrOffset, m.StdoutOffset
	return f.streamEvents(w, r, p, m.CommandID, from)
}

// streamEvents writes the events of a command, from raw offsets on. The client
// does not know yet of an error that it returns.
func (f *Face) streamEvents(w http.ResponseWriter, r *http.Request, p process.Process, command string, from [4]int64) error {
	if !f.takePlace() {
		return &problem{http.StatusServiceUnavailable, kindUnavailable, tooManyConnections(f.maxConns)}
	}
	defer f.leavePlace()
	budget.Of(r.Context()).Release() // the stream outlives its body by far
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(f.ctx, func() { cancel(context.Cause(f.ctx)) })()
	info, err := p.Info(ctx)
	if errors.Is(err, process.ErrNotFound) {
		return commandNotFound(command)
	}
	if err != nil {
		return err
	}
	out := &eventSink{w: w, flusher: http.NewResponseController(w)}
	out.held.Like(budget.Of(r.Context()))
	opts := process.ReadOptions{MaxChunk: chunkSize, Drain: drainAfterExit}
	for _, si := range info.Streams {
		// An offset beyond the end gives nothing until the stream has come there.
		out.skip[si.Stream], opts.From[si.Stream] = from[si.Stream], min(from[si.Stream], si.End)
		out.at[si.Stream] = opts.From[si.Stream]
	}
	reader, err := p.Read(ctx, opts)
	if err != nil {
		return err
	}
	defer reader.Close()
	defer f.attach(p)()

	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies must not wait for more
	out.event("started", "command_id", command, "pid", int64(info.PID))
	if err := out.Flush(); err != nil {
		return nil // the client has left
	}
	if err = protocol.Stream(ctx, reader, out, heartbeat); err == nil {
		err = out.finish(command)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // what it says itself is only the consequence
	}
	switch {
	case err == nil, r.Context().Err() != nil, out.broken:
	case errors.Is(err, errStopping), errors.Is(err, process.ErrUnavailable):
		out.fail(kindStopping, err.Error())
	default:
		p := f.describe(err)
		out.fail(p.kind, p.text)
	}
	return nil
}

// eventSink is the [protocol.Sink] of a stream of events.
type eventSink struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	skip    [4]int64 // raw offsets before which nothing is sent
	at      [4]int64 // raw offsets behind what was read
	exit    *process.Exit
	buf     []byte
	held    budget.Charge // for the event that the client takes
	broken  bool          // the client has left
}

// event writes one event; see appendObject for its fields.
func (s *eventSink) event(name string, fields ...any) error {
	s.buf = append(append(append(s.buf[:0], "event: "...), name...), "\ndata: "...)
	s.buf = append(appendObject(s.buf, fields...), "\n\n"...)
	return s.write(s.buf)
}

func (s *eventSink) write(b []byte) error {
	_, err := s.w.Write(b)
	s.broken = s.broken || err != nil
	return err
}

// Event implements [protocol.Sink].
func (s *eventSink) Event(ev process.Event, _ protocol.Output) error {
	switch ev.Kind {
	case process.EventOutput:
		return protocol.InPieces(&s.held, ev, s.output)
	case process.EventEOF:
		return s.event("stream_end", "stream", nameOf(ev.Stream), "offset", s.at[ev.Stream])
	case process.EventGap:
		return gapError(ev.Gap.Stream, ev.Gap.From, ev.Gap.To)
	case process.EventExited:
		s.exit = ev.Exit // sent after the output behind it
	}
	return nil
}

// output sends a piece of output.
func (s *eventSink) output(ev process.Event) error {
	at, data := ev.Offset, ev.Data
	s.at[ev.Stream] = at + int64(len(data))
	if before := s.skip[ev.Stream] - at; before > 0 {
		before = min(before, int64(len(data)))
		at, data = at+before, data[before:]
	}
	if len(data) == 0 {
		return nil
	}
	err := s.event(nameOf(ev.Stream), "offset", at, "data", data)
	if len(data) > protocol.SmallPiece {
		s.buf = nil // a silent stream holds no buffer
	}
	return err
}

// finish sends how the command ended.
func (s *eventSink) finish(command string) error {
	if s.exit == nil {
		return commandNotFound(command) // removed while it was read
	}
	if err := endError(s.exit); err != nil {
		return err
	}
	if err := s.event("exit", "exit_code", int64(s.exit.ShellStatus())); err != nil {
		return err
	}
	return s.Flush()
}

// fail sends an error as the last event.
func (s *eventSink) fail(kind, text string) {
	if s.event("error", "error_type", kind, "error", text) == nil {
		_ = s.Flush() // the client may have left
	}
}

// Flush implements [protocol.Sink].
func (s *eventSink) Flush() error {
	err := s.flusher.Flush()
	s.broken = s.broken || err != nil
	return err
}

// Keepalive implements [protocol.Sink].
func (s *eventSink) Keepalive() error {
	if err := s.write([]byte(": still here\n\n")); err != nil {
		return err
	}
	return s.Flush()
}
