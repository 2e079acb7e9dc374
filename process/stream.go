package process

import (
	"fmt"
	"os"
	"time"
)

// Stream names one byte stream of a process.
type Stream uint8

const (
	Stdin  Stream = 0
	Stdout Stream = 1
	Stderr Stream = 2
	PTY    Stream = 3 // the terminal's output: stdout and stderr in one
)

func (s Stream) String() string {
	switch s {
	case Stdin:
		return "stdin"
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case PTY:
		return "pty"
	}
	return fmt.Sprintf("stream(%d)", uint8(s))
}

// Gap is a range of bytes [From, To) of a stream that cannot be read any more.
type Gap struct {
	Stream   Stream
	From, To int64
}

// EventKind is the kind of a fact about a process.
type EventKind uint8

const (
	EventStarted  EventKind = iota + 1 // PID is set
	EventOutput                        // Stream, Offset, Data
	EventGap                           // Gap: bytes were freed before they were read
	EventExited                        // Exit
	EventEOF                           // Stream, Offset = the stream's length
	EventTreeGone                      // no descendant is left
	EventRemoved                       // the process and its output were removed
	EventResized                       // Stream, Offset, Size: its terminal has that size from there on; see ReadOptions.Sizes
)

var eventNames = [...]string{"", "started", "output", "gap", "exited", "eof", "tree_gone", "removed", "resized"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is one fact about one process.
type Event struct {
	Kind EventKind
	ID   ID
	// Time is when it happened; zero if unknown. Data of one event may have
	// arrived up to 100 ms later.
	Time   time.Time
	PID    int
	Stream Stream
	Offset int64 // of Data[0], or the end of the stream for EventEOF
	// Data of EventOutput. It is valid until the next call of the reader that
	// returned it: copy what you keep.
	Data []byte
	Gap  Gap
	Exit *Exit
	Size Size // of the terminal
}

// ReadOptions say what a reader delivers. The zero value: every output stream
// from its oldest byte, to the end of the process.
type ReadOptions struct {
	// Streams to read; empty means all. A stream the process does not have
	// is not an error: it delivers nothing.
	Streams []Stream
	// From holds the offset at which each stream starts, indexed by Stream.
	// [FromNow] means the end at the time of the call. An offset past the end
	// of a finished stream is [ErrOffset]; past the end of a live one it is
	// too, as no reader can have seen such a byte.
	From [4]int64
	// NoFollow ends the reader when it has delivered what there was at the
	// time of the call.
	NoFollow bool
	// Unordered gives up the order of arrival between the streams, for speed:
	// each stream is still in order.
	Unordered bool
	// Drain is how long after the exit the reader goes on while a stream is
	// still open, held by a descendant. Negative: until EOF of each stream.
	// 0: what the pipes held at the exit, which is always delivered.
	Drain time.Duration
	// MaxChunk bounds Data of one event in bytes; 0: 256 KiB. 1..1 MiB. Less
	// comes at a time while many readers leave unread what they were given.
	MaxChunk int
	// ExactTimes makes output one event only if it arrived within one millisecond, so
	// that Time is that of all its bytes. Otherwise what arrived within 100 ms of the
	// first byte may be one. It makes a long output of short lines slow to read, and
	// has no effect with Unordered.
	ExactTimes bool
	// Sizes delivers EventResized for each change of a terminal's size, between the
	// bytes that were written before and after it, and first the size that it was started with. A reader that
	// begins later is told first, with no time, which size holds there. What was not
	// recorded is missing: for a process that an older tend started,
	// Spec.PTY holds until the first event. It has no effect with Unordered.
	Sizes bool
}

// FromNow as an offset in [ReadOptions].From skips what was written before.
const FromNow int64 = -1

// Reader is a position in the output of one process. It never blocks and holds
// nothing up: bytes wait in the spool, not in the reader.
//
// The events are: EventStarted first (again, for every reader), then output
// and gaps, EventExited after all output that precedes the exit, EventEOF for
// each stream that reached it, then io.EOF as the error. With NoFollow the
// reader ends with io.EOF wherever it stands.
type Reader interface {
	// Next returns the next event. ok is false when there is none yet: wait
	// for Ready. The error is io.EOF after the last event.
	Next() (ev Event, ok bool, err error)
	// Ready receives after something may have become available since Next
	// last returned ok == false. It may receive for nothing.
	Ready() <-chan struct{}
	// Close releases the reader. It is safe to call twice.
	Close() error
}

// Spanner is an optional ability of a [Reader] on the same machine: output as
// ranges of the spool file, to be copied to where it is sent from. Sendfile and
// splice are no copies: they pass the file's pages on, and retention may fill
// these with zeros long after. Next and NextSpan may be mixed.
type Spanner interface {
	// NextSpan is Next with Data left nil: the bytes are in the span. They
	// may be freed by retention at any time; a range freed while it is being
	// copied reads as zero bytes, so check with Valid after the copy.
	NextSpan(max int) (ev Event, span Span, ok bool, err error)
	// Valid reports whether bytes from offset on were still kept when it was
	// called.
	Valid(s Stream, offset int64) bool
}

// Prompter is an optional ability of a [Spanner]: output can be passed on where
// it is noticed, without a switch to the goroutine that waits for Ready.
type Prompter interface {
	Spanner
	// Prompt has f called where Ready would receive; then Ready receives only if
	// f returns false. f must not block: it holds up the readers of all other
	// processes. It may be called for nothing, and for a moment after Close.
	Prompt(f func() bool)
	// AtHand reports whether NextSpan finds what comes next without a disk.
	AtHand() bool
}

// Span is a range of an open file that belongs to the reader. Do not close it
// and do not use its file position.
type Span struct {
	File   *os.File
	Offset int64
	Len    int
}
