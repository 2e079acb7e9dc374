package metrics

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/process"
)

// manager sees starts and readers on their way to the real manager.
type manager struct {
	process.Manager
	m *Metrics
}

func (w *manager) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	began := time.Now()
	p, err := w.Manager.Start(ctx, spec)
	if err != nil {
		w.m.startErrors.WithLabelValues(startReason(err)).Inc()
		return nil, err
	}
	w.m.startSeconds.Observe(time.Since(began).Seconds())
	return &handle{Process: p, readers: &w.m.readers}, nil
}

func (w *manager) Get(ctx context.Context, sel process.Selector) (process.Process, error) {
	p, err := w.Manager.Get(ctx, sel)
	if err != nil {
		return nil, err
	}
	return &handle{Process: p, readers: &w.m.readers}, nil
}

// startReason is a label, so it takes few values.
func startReason(err error) string {
	if start, ok := errors.AsType[*process.StartError](err); ok {
		return start.Reason.String()
	}
	if _, ok := errors.AsType[*process.InvalidError](err); ok {
		return "invalid"
	}
	switch {
	case errors.Is(err, process.ErrExists):
		return "exists"
	case errors.Is(err, process.ErrLimit):
		return "limit"
	case errors.Is(err, process.ErrUnsupported):
		return "unsupported"
	case errors.Is(err, process.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "canceled"
	}
	return "other"
}

// handle sees the readers of one process.
type handle struct {
	process.Process
	readers *readerSet
}

var _ process.PortLister = (*handle)(nil)

// Listening implements process.PortLister with what the process itself can say.
func (h *handle) Listening(ctx context.Context) ([]process.Listener, error) {
	if l, ok := h.Process.(process.PortLister); ok {
		return l.Listening(ctx)
	}
	return nil, nil
}

func (h *handle) Read(ctx context.Context, opts process.ReadOptions) (process.Reader, error) {
	r, err := h.Process.Read(ctx, opts)
	if err != nil {
		return nil, err
	}
	seen := &reader{Reader: r, id: h.ID(), set: h.readers}
	for s, from := range opts.From {
		if len(opts.Streams) > 0 && !slices.Contains(opts.Streams, process.Stream(s)) {
			from = process.FromNow // not asked for: it cannot lag
		}
		seen.at[s].Store(from)
	}
	h.readers.add(seen)
	switch r := r.(type) {
	case process.Prompter:
		return &promptReader{spanReader{reader: seen, spans: r}, r}, nil
	case process.Spanner:
		return &spanReader{reader: seen, spans: r}, nil
	}
	return seen, nil
}

// reader remembers how far a reader has come.
type reader struct {
	process.Reader
	id  process.ID
	set *readerSet
	// at is the next offset of each stream; negative: not asked for, or from
	// now on and nothing has come yet. Atomic, since scrapes read it beside
	// the reader's own goroutine.
	at [4]atomic.Int64
}

func (r *reader) Next() (process.Event, bool, error) {
	ev, ok, err := r.Reader.Next()
	if ok {
		r.passed(&ev, len(ev.Data))
	}
	return ev, ok, err
}

func (r *reader) passed(ev *process.Event, n int) {
	switch ev.Kind {
	case process.EventOutput:
		r.at[ev.Stream&3].Store(ev.Offset + int64(n))
	case process.EventGap:
		r.at[ev.Gap.Stream&3].Store(ev.Gap.To)
	}
}

func (r *reader) Close() error {
	r.set.remove(r)
	return r.Reader.Close()
}

// spanReader is a reader that keeps the ability of the one it wraps to give
// ranges of the spool file.
type spanReader struct {
	*reader
	spans process.Spanner
}

func (r *spanReader) NextSpan(limit int) (process.Event, process.Span, bool, error) {
	ev, span, ok, err := r.spans.NextSpan(limit)
	if ok {
		r.passed(&ev, max(span.Len, len(ev.Data)))
	}
	return ev, span, ok, err
}

func (r *spanReader) Valid(s process.Stream, offset int64) bool { return r.spans.Valid(s, offset) }

// promptReader keeps the ability to prompt, too.
type promptReader struct {
	spanReader
	prompts process.Prompter
}

func (r *promptReader) Prompt(f func() bool) { r.prompts.Prompt(f) }
func (r *promptReader) AtHand() bool         { return r.prompts.AtHand() }

// readerSet holds the open readers.
type readerSet struct {
	mu   sync.Mutex
	open map[*reader]struct{} // guarded by mu
}

func (s *readerSet) add(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*reader]struct{})
	}
	s.open[r] = struct{}{}
}

func (s *readerSet) remove(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, r)
}

// lag returns the number of open readers and how many bytes the one furthest
// behind has before it, those that retention has freed among them.
func (s *readerSet) lag(ends map[process.ID][]process.StreamInfo) (open int, worst int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.open {
		for _, st := range ends[r.id] {
			if at := r.at[st.Stream&3].Load(); at >= 0 {
				worst = max(worst, st.End-at)
			}
		}
	}
	return len(s.open), worst
}
