package protocol

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
)

// Sink takes the events of one process in order and turns them into wire
// messages. It may block: nothing but its own stream waits for it.
type Sink interface {
	// Event takes one event. For EventOutput the bytes are in ev.Data, or, if
	// the sink has asked for spans, in the range of a file that is valid
	// until Event returns.
	Event(ev process.Event, out Output) error
	// Flush sends what Event may have kept back: nothing more comes for now.
	Flush() error
	// Keepalive is called when nothing was sent for the keepalive interval.
	Keepalive() error
}

// SpanSink is a [Sink] that copies from the spool file itself.
type SpanSink interface {
	Sink
	// WantsSpans reports whether Event wants file ranges; the most bytes it
	// takes at once.
	WantsSpans() (max int, ok bool)
}

// Output says where the bytes of an output event are, if not in its Data.
type Output struct {
	// Span is set if Span.File is not nil.
	Span  process.Span
	valid process.Spanner
}

// Valid reports whether the bytes copied from the span of ev are the ones the
// process wrote: a range freed by retention during the copy reads as zeros.
// Call it after the copy.
func (o *Output) Valid(ev process.Event) bool {
	return o.valid == nil || o.valid.Valid(ev.Stream, ev.Offset)
}

// PromptSink is a [SpanSink] that can also send a small event without waiting.
type PromptSink interface {
	SpanSink
	// WantsPrompt reports whether it can, and the most bytes of such an event.
	WantsPrompt() (max int, ok bool)
	// Clear reports that nothing waits to be sent before the next event.
	Clear() bool
	// Prompt sends an event without blocking, after Clear was true. What the
	// reader does not take at once is kept, and Flush sends it. false: it left
	// the event to Event.
	Prompt(ev process.Event, out Output) bool
}

// Stream moves the events of r to sink until the reader ends (nil), ctx ends
// (its cause), or reader or sink fail. keepalive is the longest silence; 0
// means no keepalives. Stream does not close the reader.
//
// It holds no buffer and no goroutine of its own, so an idle stream costs
// what its caller holds. While it waits, the goroutine
// that notices small output sends it, if reader and sink are able to; see pump.
func Stream(ctx context.Context, r process.Reader, sink Sink, keepalive time.Duration) error {
	p := newPump(r, sink)
	p.mu.Lock()
	defer p.end()
	var tick *time.Timer
	var ticks <-chan time.Time
	if keepalive > 0 {
		tick = time.NewTimer(keepalive)
		defer tick.Stop()
		ticks = tick.C
	}
	done := ctx.Done()
	for {
		ev, out, ok, err := p.pop()
		switch {
		case errors.Is(err, io.EOF):
			return sink.Flush()
		case err != nil:
			return err
		case ok:
			if err := sink.Event(ev, out); err != nil {
				return err
			}
			// A stream that always has more must end with its context, too.
			select {
			case <-done:
				return context.Cause(ctx)
			default:
			}
			continue
		}
		if err := sink.Flush(); err != nil {
			return err
		}
		if tick != nil {
			tick.Reset(keepalive)
		}
	wait:
		for {
			p.mu.Unlock()
			silent := false
			select {
			case <-r.Ready():
			case <-done:
			case <-ticks:
				silent = true
			}
			p.mu.Lock()
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case !silent:
				break wait
			}
			left := time.Duration(0)
			if !p.sent.IsZero() {
				left = keepalive - time.Since(p.sent)
			}
			if left <= 0 {
				if err := sink.Keepalive(); err != nil {
					return err
				}
				left = keepalive
			}
			tick.Reset(left)
		}
	}
}

type nextFunc func() (process.Event, Output, bool, error)

func fromEvents(r process.Reader) nextFunc {
	return func() (process.Event, Output, bool, error) {
		ev, ok, err := r.Next()
		return ev, Output{}, ok, err
	}
}

func fromSpans(sp process.Spanner, max int) nextFunc {
	return func() (process.Event, Output, bool, error) {
		ev, span, ok, err := sp.NextSpan(max)
		return ev, Output{Span: span, valid: sp}, ok, err
	}
}

// KeepaliveOf returns the interval of keepalives that a client of E2B's asks for: the
// seconds of Keepalive-Ping-Interval, between 1 s and a day; 90 s if it is absent or no
// number. The original dies of 0 and of negative numbers.
func KeepaliveOf(h http.Header) time.Duration {
	n, err := strconv.ParseInt(strings.TrimSpace(h.Get("Keepalive-Ping-Interval")), 10, 64)
	if err != nil {
		return 90 * time.Second
	}
	return time.Duration(min(max(n, 1), 24*3600)) * time.Second
}
