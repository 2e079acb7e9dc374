package process

import (
	"fmt"
	"unicode/utf8"
)

// Input is one write to stdin or the terminal. Its bytes stay together: the
// bytes of no other writer come between them.
//
// A write of at most [MaxWhole] bytes is taken whole or, if the server dies,
// not at all. A longer one is taken in parts; a part that was taken stays.
type Input struct {
	Data []byte
	// Writer names the writer, so that several may write to one process and each
	// repeat what was lost on the way: Offset then counts this
	// writer's own bytes. A random name of 1 to [MaxWriterName] bytes is good.
	// A process remembers at least the last [Writers] of them.
	Writer string
	// Offset makes the write safe to repeat: it is the position of Data[0] in
	// the bytes of Writer. Bytes that were taken already are acknowledged, not
	// applied again; an offset past them is ErrOffset. A writer that is new
	// begins at 0. Nil: append; then Writer is empty.
	//
	// Without Writer it is the position in the stream of all input, up to
	// StdinInfo.Accepted, which is good for a process with one writer only: what
	// another has written there is taken for what this one repeats.
	Offset *int64
	// More: the write goes on with the next Input of this Writer, and others
	// wait for that one, up to ten seconds.
	More bool
	// Again: it may have been sent before. A writer that is not remembered, and
	// may have been forgotten, then gets ErrWriterForgotten at offset 0, too.
	Again bool
	// NoWait: if as much waits already for a process that does not read as
	// would make a writer wait long, nothing is taken: ErrInputFull.
	NoWait bool
	// EOF closes stdin after Data. On a terminal it is ErrPTY: send the
	// terminal's own end-of-file character (0x04) instead.
	EOF bool
}

const (
	// MaxWhole is how many bytes of one write are taken whole or not at all.
	MaxWhole = 1 << 20
	// MaxWriterName bounds Input.Writer in bytes.
	MaxWriterName = 32
	// Writers is how many writers a process remembers.
	Writers = 64
)

// Validate reports the first field that is wrong, as an *InvalidError.
func (in *Input) Validate() error {
	switch {
	case in.Offset != nil && *in.Offset < 0:
		return &InvalidError{Field: "offset", Reason: fmt.Sprintf("is %d; an offset of input is 0 or more", *in.Offset)}
	case len(in.Writer) > MaxWriterName:
		return &InvalidError{Field: "writer", Reason: fmt.Sprintf("has %d bytes; at most %d are allowed", len(in.Writer), MaxWriterName)}
	case !utf8.ValidString(in.Writer):
		return &InvalidError{Field: "writer", Reason: "is not valid UTF-8"}
	case in.Writer != "" && in.Offset == nil:
		return &InvalidError{Field: "offset", Reason: "is missing; with a writer it is the position in that writer's own bytes"}
	case in.More && in.Writer == "":
		return &InvalidError{Field: "writer", Reason: "is missing; a write that goes on must say whose it is"}
	case in.More && in.EOF:
		return &InvalidError{Field: "more", Reason: "is set together with eof; nothing goes on behind the end"}
	}
	return nil
}

// Accepted is the answer to a write: all input before Offset was taken and
// will reach the process in order, even if a role of tend dies now. With an
// error Offset may be 0, where it is not known: ask Info.
type Accepted struct {
	Offset int64
	// Written is how many bytes of Input.Writer were taken in all; 0 without
	// one, and where it is not known.
	Written int64
}
