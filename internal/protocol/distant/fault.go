package distant

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/process"
)

// kind is the kind of an error, one of the original's list.
type kind string

const (
	kindNotFound         kind = "not_found"
	kindPermission       kind = "permission_denied"
	kindAlreadyExists    kind = "already_exists"
	kindWouldBlock       kind = "would_block"
	kindInvalidInput     kind = "invalid_input"
	kindInvalidData      kind = "invalid_data"
	kindInterrupted      kind = "interrupted"
	kindBrokenPipe       kind = "broken_pipe"
	kindOther            kind = "other"
	kindUnsupported      kind = "unsupported"
	kindTimedOut         kind = "timed_out"
	kindLoop             kind = "loop"
	kindOutOfMemory      kind = "out_of_memory"
	kindNotConnected     kind = "not_connected"
	kindUnexpectedEOF    kind = "unexpected_eof"
	maxFaultText              = 4 << 10
	canceledByEarlier         = "Canceled due to earlier error" // the original's words
	unknownProcessFormat      = "No process found with id %d"   // the original's words
)

// fault is the answer to a request that failed. As an error it is passed
// through [faultOf] unchanged.
type fault struct {
	kind kind
	text string
}

func (f *fault) Error() string { return f.text }

func faultf(k kind, format string, args ...any) *fault {
	return &fault{k, fmt.Sprintf(format, args...)}
}

func (f *fault) message() wire.Map {
	text := f.text
	if len(text) > maxFaultText {
		text = text[:maxFaultText] + "…"
	}
	return wire.Map{"type", "error", "kind", string(f.kind), "description", text}
}

func unknownProcess(id uint32) *fault { return faultf(kindOther, unknownProcessFormat, id) }

// faultOf is the one table from the errors of the domain to the kinds of this
// protocol.
func faultOf(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	if start, ok := errors.AsType[*process.StartError](err); ok {
		return &fault{startKind(start), err.Error()}
	}
	return &fault{kindOf(err), err.Error()}
}

func startKind(e *process.StartError) kind {
	switch e.Reason {
	case process.StartNotFound:
		return kindNotFound
	case process.StartPermission:
		return kindPermission
	case process.StartBadDir:
		switch {
		case errors.Is(e.Err, fs.ErrNotExist):
			return kindNotFound
		case errors.Is(e.Err, fs.ErrPermission):
			return kindPermission
		}
	case process.StartTooLong:
		return kindInvalidInput
	case process.StartResources:
		return kindWouldBlock
	}
	return kindOther
}

func kindOf(err error) kind {
	for _, known := range [...]struct {
		err  error
		kind kind
	}{
		{process.ErrNotFound, kindOther}, {process.ErrExited, kindOther}, {process.ErrNoPTY, kindOther},
		{process.ErrStdinClosed, kindBrokenPipe}, {process.ErrExists, kindAlreadyExists},
		{process.ErrUnavailable, kindNotConnected}, {process.ErrUnsupported, kindUnsupported},
		{process.ErrLimit, kindWouldBlock}, {process.ErrPermission, kindPermission},
		{process.ErrOffset, kindInvalidInput},
		{files.ErrNotExist, kindNotFound}, {files.ErrExists, kindAlreadyExists}, {files.ErrPermission, kindPermission},
		{files.ErrIsDir, kindOther}, {files.ErrNotDir, kindOther}, {files.ErrLoop, kindLoop},
		{files.ErrUnknownUser, kindNotFound},
		{fs.ErrNotExist, kindNotFound}, {fs.ErrExist, kindAlreadyExists}, {fs.ErrPermission, kindPermission},
		{syscall.ENOMEM, kindOutOfMemory}, {syscall.ELOOP, kindLoop},
		{context.DeadlineExceeded, kindTimedOut}, {context.Canceled, kindInterrupted},
	} {
		if errors.Is(err, known.err) {
			return known.kind
		}
	}
	if _, ok := errors.AsType[*process.InvalidError](err); ok {
		return kindInvalidInput
	}
	if _, ok := errors.AsType[*wire.Error](err); ok {
		return kindInvalidInput
	}
	return kindOther
}

// Refusal is the line for a client of JSON lines that is not served at all. It has
// the reason.
func Refusal(why error) []byte {
	w := wire.NewJSON(nil)
	putMessage(w, &fault{kindPermission, why.Error()})
	return append(w.Buffer(), '\n')
}
