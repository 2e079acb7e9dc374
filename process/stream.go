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

// ReadOptions select what a reader delivers. The zero value selects every output stream
// from its oldest byte to the end of the process.
type ReadOptions struct {
	// Streams to read; empty means all. A stream the process does not have
	// is not an error: it delivers nothing.
	Streams []Stream
	// From holds the offset at which each stream starts, indexed by Stream.
	// [FromNow] means the end at the time of the call. An offset past the end
	// of a finished stream is [ErrOffset]; past the end of a live one it is
	// too, as no reader can have seen such a byte.
	From [4]int64
	// NoFollow ends the reader when it has delivered the output that existed at the time
	// of the call.
	NoFollow bool
	// Unordered gives up the order of arrival between streams, for speed; each stream
	// stays in order.
	Unordered bool
	// Drain is how long the reader continues after the exit while a descendant holds a
	// stream open. Negative: until EOF of each stream. 0: it delivers only the bytes that
	// the pipes held at the exit; these are always delivered.
	Drain time.Duration
	// MaxChunk limits Data of one event in bytes, 1..1 MiB; 0: 256 KiB. Events are smaller
	// while many readers have unread data.
	MaxChunk int
	// ExactTimes puts bytes into one event only if they arrived within one millisecond, so
	// that Time is exact for all of them. Otherwise bytes that arrived within 100 ms of
	// the first one may share an event. It makes a long output of short lines slow to
	// read, and has no effect with Unordered.
	ExactTimes bool
	// Sizes delivers EventResized for each change of a terminal's size, between the bytes
	// written before and after it; the first event has the initial size. A reader that
	// begins later first gets the size at its position, without a time. Sizes that were
	// not recorded are missing: for a process that an older tend started, Spec.PTY is
	// valid until the first event. It has no effect with Unordered.
	Sizes bool
}

// FromNow as an offset in ReadOptions.From skips all earlier output.
const FromNow int64 = -1

// Reader is a position in the output of one process. It never blocks, and it never
// slows down the process: bytes wait in the spool, not in the reader.
//
// The events are: EventStarted first (again, for every reader), then output
// and gaps, EventExited after all output that precedes the exit, EventEOF for
// each stream that reached it, then io.EOF as the error. With NoFollow the
// reader ends with io.EOF wherever it stands.
type Reader interface {
	// Next returns the next event. ok is false when there is none yet: wait
	// for Ready. The error is io.EOF after the last event.
	Next() (ev Event, ok bool, err error)
	// Ready receives after an event may have become available since Next last returned ok
	// == false. It may also receive without reason.
	Ready() <-chan struct{}
	// Close releases the reader. It is safe to call twice.
	Close() error
}

// Spanner is an optional ability of a [Reader] on the same machine: it returns output
// as ranges of the spool file, which the caller copies before sending. Sendfile and
// splice do not copy: they pass on the file's pages, and retention may fill these with
// zeros much later. Next and NextSpan may be mixed.
type Spanner interface {
	// NextSpan is like Next, but Data is nil: the bytes are in the span. Retention may
	// free them at any time; a range that is freed while it is copied reads as zero bytes,
	// so call Valid after the copy.
	NextSpan(max int) (ev Event, span Span, ok bool, err error)
	// Valid reports whether the bytes from offset on were still kept at the time of the
	// call.
	Valid(s Stream, offset int64) bool
}

// Prompter is an optional ability of a [Spanner]: output can be passed on by the
// goroutine that notices it, without a switch to the goroutine that waits for Ready.
type Prompter interface {
	Spanner
	// Prompt registers f, which is then called when Ready would receive; Ready receives
	// only if f returns false. f must not block, because it would block the readers of all
	// other processes. It may be called without reason, and for a moment after Close.
	Prompt(f func() bool)
	// AtHand reports whether NextSpan can return the next event without reading from a
	// disk.
	AtHand() bool
}

// Span is a range of an open file that belongs to the reader. Do not close it
// and do not use its file position.
type Span struct {
	File   *os.File
	Offset int64
	Len    int
}
