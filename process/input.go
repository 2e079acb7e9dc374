package process

import (
	"fmt"
	"unicode/utf8"
)

// Input is one write to stdin or the terminal. Its bytes stay together: no bytes of
// other writers come between them.
//
// A write of at most [MaxWhole] bytes is accepted as a whole or, if the server dies,
// not at all. A longer write is accepted in parts; an accepted part stays.
type Input struct {
	Data []byte
	// Writer names the writer, so that several writers may write to one process and each
	// can repeat lost writes: Offset then counts this writer's own bytes. Use a random
	// name of 1 to [MaxWriterName] bytes. A process remembers at least the last [Writers]
	// writers.
	Writer string
	// Offset makes the write safe to repeat: it is the position of Data[0] in the bytes of
	// Writer. Bytes that were already accepted are acknowledged, not applied again; an
	// offset beyond them is ErrOffset. A new writer begins at 0. Nil: append; then Writer
	// must be empty.
	//
	// Without Writer it is the position in the stream of all input, up to
	// StdinInfo.Accepted. Use this only for a process with one writer: bytes that another
	// one wrote at this position are mistaken for a repeated write.
	Offset *int64
	// More: the write continues with the next Input of this Writer, and other writers wait
	// for it, up to ten seconds. Once another has written, the rest is [ErrWriterForgotten]. An
	// Input without Data and More ends it: send one if the rest never comes. At offset 0 it says
	// that nothing at all comes of this Writer any more: what is still on its way is
	// [ErrWriterForgotten].
	More bool
	// Again: the write may have been sent before. A writer that is not remembered, and may
	// have been forgotten, then gets ErrWriterForgotten even at offset 0.
	Again bool
	// NoWait: if so much input already waits for the process that the writer would have to
	// wait long, nothing is accepted: ErrInputFull.
	NoWait bool
	// EOF closes stdin after Data. On a terminal it is ErrPTY: send the
	// terminal's own end-of-file character (0x04) instead.
	EOF bool
}

const (
	// MaxWhole is the size up to which a write is accepted as a whole or not at all, in
	// bytes.
	MaxWhole = 1 << 20
	// MaxWriterName bounds Input.Writer in bytes.
	MaxWriterName = 32
	// Writers is how many writers a process remembers.
	Writers = 64
)

// Validate returns an *InvalidError for the first invalid field, or nil.
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

// Accepted is the answer to a write: all input before Offset was accepted and will
// reach the process in order, even if a role of tend dies now. With an error, Offset
// may be 0 because it is unknown: call Info.
type Accepted struct {
	Offset int64
	// Written is the total number of bytes accepted from Input.Writer; 0 without a writer,
	// or if unknown.
	Written int64
}
