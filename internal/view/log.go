package view

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
)

const (
	maxLogEntries = 10000
	// maxLogLine is how many bytes of a line are one entry; a longer one is several.
	maxLogLine = 16 << 10
	// logBlock is what is read of a stream at a time, and logBudget what one call reads
	// of all. A read counts as logRead more, that of one byte as logPeek, and a line as
	// logEntry.
	logBlock  = 64 << 10
	logRead   = 4 << 10
	logPeek   = 1 << 10
	logEntry  = 64
	logBudget = 32 << 20
	// logJoin is how much earlier than it was written a byte may be said to be.
	logJoin = 100 * time.Millisecond
)

// LogOptions says what of a log to return.
type LogOptions struct {
	// From is the first time, or the last one if Backward. Zero: from the beginning, or
	// from the end.
	From     time.Time
	Backward bool
	// Limit is the most entries; 0: 1,000; at most 10,000.
	Limit int
	// Match says which entries are wanted. Nil: all. [LogMore] is not asked for.
	Match func(*LogEntry) bool
}

// Validate returns a *process.InvalidError if the options are invalid, or nil.
func (o *LogOptions) Validate() error {
	if o.Limit < 0 || o.Limit > maxLogEntries {
		return &process.InvalidError{Field: "limit", Reason: fmt.Sprintf("is %d; 0 to %d are allowed", o.Limit, maxLogEntries)}
	}
	return nil
}

// LogKind is what an entry is about.
type LogKind uint8

// The kinds.
const (
	LogBegan LogKind = iota + 1 // the process was started
	LogLine                     // a line that it has written, without its end
	LogLost                     // output that was freed, or cannot be read; Text says which
	LogEnded                    // the process has ended
	LogMore                     // the last entry: the log was not read beyond Time, for there is too much
)

// LogEntry is one entry of a log.
type LogEntry struct {
	// Time of a line is that of its first byte, to within 100 ms.
	Time   time.Time
	Kind   LogKind
	Of     *process.Info // nil for LogMore. It is shared: do not change it.
	Stream process.Stream
	// Text is valid UTF-8. A line of more than 16 KiB is several entries.
	Text string
}

// Log returns what processes have done and written as one log in the order of time, newest
// first if it is asked for backward. Streams are read from the time on that is asked for, in
// blocks, and 32 MiB at most, less of short lines: a search that finds less than it wants until then ends with
// LogMore, and continues by its Time. Errors: *process.InvalidError.
func Log(ctx context.Context, m process.Manager, f process.Filter, o LogOptions) ([]LogEntry, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	all, err := m.List(ctx, f)
	if err != nil {
		return nil, err
	}
	l := &logger{ctx: ctx, m: m, o: &o, left: logBudget}
	limit := cmp.Or(o.Limit, 1000)
	for i := range all {
		l.enter(&all[i])
	}
	heap.Init(l)
	var out []LogEntry
	for l.Len() > 0 && len(out) < limit {
		t := l.tapes[0]
		if t.over() {
			heap.Pop(l)
			continue
		}
		if len(t.ready) == 0 {
			if l.left <= 0 {
				at := t.key
				if now := time.Now(); at.After(now) {
					at = now
				}
				return append(out, LogEntry{Time: at, Kind: LogMore, Text: "there is more than is read at once; ask again from this time on"}), nil
			}
			if err := t.fill(); err != nil {
				return nil, err
			}
		} else {
			if e := &t.ready[0]; l.within(e.Time) && (o.Match == nil || o.Match(e)) {
				out = append(out, *e)
			}
			t.ready = t.ready[1:]
		}
		if len(t.ready) > 0 {
			t.key = t.ready[0].Time
		}
		heap.Fix(l, 0)
	}
	return out, nil
}

// logger merges tapes: a heap of those that have something left, the next in time first.
type logger struct {
	ctx   context.Context // of the one call it lives for
	m     process.Manager
	o     *LogOptions
	left  int64 // bytes that may still be read
	tapes []*tape
}

func (l *logger) Len() int      { return len(l.tapes) }
func (l *logger) Swap(i, j int) { l.tapes[i], l.tapes[j] = l.tapes[j], l.tapes[i] }
func (l *logger) Push(x any)    { l.tapes = append(l.tapes, x.(*tape)) }

func (l *logger) Pop() any {
	last := l.tapes[len(l.tapes)-1]
	l.tapes = l.tapes[:len(l.tapes)-1]
	return last
}

func (l *logger) Less(i, j int) bool {
	if l.o.Backward {
		i, j = j, i
	}
	a, b := l.tapes[i], l.tapes[j]
	if c := a.key.Compare(b.key); c != 0 {
		return c < 0
	}
	return a.rank < b.rank
}

// within reports whether a time is one that is asked for.
func (l *logger) within(at time.Time) bool {
	switch {
	case l.o.From.IsZero():
		return true
	case l.o.Backward:
		return !at.After(l.o.From)
	}
	return !at.Before(l.o.From)
}

// enter adds what there is of a process: its start, its streams and its end.
func (l *logger) enter(in *process.Info) {
	add := func(t *tape) {
		t.l, t.in, t.rank = l, in, len(l.tapes)
		l.tapes = append(l.tapes, t)
	}
	fact := func(at time.Time, kind LogKind, text string) {
		if !at.IsZero() && l.within(at) {
			add(&tape{key: at, ready: []LogEntry{{Time: at, Kind: kind, Of: in, Text: text}}})
		}
	}
	fact(in.Started, LogBegan, strings.ToValidUTF8(in.Spec.Command(), "\uFFFD"))
	for _, s := range in.Streams {
		if s.End == 0 || l.o.Backward && !l.within(in.Started) {
			continue
		}
		t := &tape{stream: s.Stream, from: s.Base, to: s.End, base: s.Base, end: s.End, unsought: l.o.Backward || !l.o.From.IsZero()}
		switch {
		case l.o.Backward && l.o.From.IsZero():
			t.key = time.Unix(1<<40, 0) // nobody knows when it wrote last
		case l.o.Backward:
			t.key = l.o.From
		default:
			t.key = in.Started
			if l.o.From.After(t.key) {
				t.key = l.o.From
			}
		}
		add(t)
		if s.Base > 0 && (!l.o.Backward || s.Base >= s.End) {
			t.lost(process.Gap{Stream: s.Stream, To: s.Base}, in.Started)
			if l.o.Backward {
				t.key = in.Started
			}
		}
	}
	if in.Exit != nil {
		fact(in.Exit.Time, LogEnded, in.Exit.String())
	}
}
