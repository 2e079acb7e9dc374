package protocol

import (
	"sync"
	"time"

	"github.com/tend-run/tend/process"
)

// pump is what two goroutines share of a stream: its own, which may wait for a
// slow client, and the one that notices output of all processes, which must not.
// The first holds mu except while it waits for something to happen. The second then
// sends what is small and at hand, and leaves everything else to the first, with the
// event that it has read already, if any. So one at a time reads events, and they
// are sent in the order in which they were read.
type pump struct {
	next   nextFunc
	reader process.Prompter
	sink   PromptSink
	most   int // bytes of an event that is sent at once

	mu   sync.Mutex
	held *heldEvent // read and not sent; guarded by mu
	sent time.Time  // when the other last sent; guarded by mu
	over bool       // guarded by mu
}

// heldEvent is what nextFunc returned.
type heldEvent struct {
	ev  process.Event
	out Output
	ok  bool
	err error
}

func newPump(r process.Reader, sink Sink) *pump {
	p := &pump{next: fromEvents(r)}
	ss, ok := sink.(SpanSink)
	if !ok {
		return p
	}
	sp, ok := r.(process.Spanner)
	if !ok {
		return p
	}
	max, ok := ss.WantsSpans()
	if !ok {
		return p
	}
	p.next = fromSpans(sp, max)
	prompter, ok := r.(process.Prompter)
	if !ok {
		return p
	}
	if ps, ok := sink.(PromptSink); ok {
		if p.most, ok = ps.WantsPrompt(); ok {
			p.reader, p.sink = prompter, ps
			prompter.Prompt(p.prompt)
		}
	}
	return p
}

// end marks the stream as over. mu is held.
func (p *pump) end() {
	p.over = true
	p.mu.Unlock()
	if p.reader != nil {
		p.reader.Prompt(nil)
	}
}

// pop returns what comes next. mu is held.
func (p *pump) pop() (process.Event, Output, bool, error) {
	if h := p.held; h != nil {
		p.held = nil
		return h.ev, h.out, h.ok, h.err
	}
	return p.next()
}

// promptRounds bounds the events that are sent at one call.
const promptRounds = 2

// prompt sends what is small and at hand, and never blocks. It reports false if
// there is more to do, for the stream's own goroutine.
func (p *pump) prompt() bool {
	if !p.mu.TryLock() {
		return false // it runs, and looks again when it is notified
	}
	defer p.mu.Unlock()
	if p.over {
		return true
	}
	for range promptRounds {
		if p.held != nil || !p.sink.Clear() || !p.reader.AtHand() {
			return false
		}
		ev, span, ok, err := p.reader.NextSpan(p.most)
		if err == nil && !ok {
			return true
		}
		out := Output{Span: span, valid: p.reader}
		if err != nil || ev.Kind != process.EventOutput || !p.sink.Prompt(ev, out) {
			p.held = &heldEvent{ev, out, ok, err}
			return false
		}
		p.sent = time.Now()
	}
	return false
}
