package envd

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/process"
)

// errStopping is the cause of streams that end because the server stops.
var errStopping = errors.New("the server is stopping; the process goes on: connect again")

// errEnded takes its place where the process has ended, and the client was not
// told so far.
var errEnded = errors.New("the server is stopping; the process has ended: connect again for how it did")

// errClientLeft is the cause of streams whose client has closed its side.
var errClientLeft = errors.New("the client has left")

// wireErr is the one table from the errors of the domain to Connect's codes.
// Errors that carry a code already pass unchanged; nil stays nil.
func wireErr(err error) *connect.Error {
	if err == nil {
		return nil
	}
	var coded *connect.Error
	if errors.As(err, &coded) {
		return coded
	}
	var gap *process.GapError
	if errors.As(err, &gap) {
		return gapError(gap.Gap)
	}
	return connect.NewError(codeOf(err), err)
}

func codeOf(err error) connect.Code {
	var invalid *process.InvalidError
	switch {
	case errors.As(err, &invalid):
		return connect.CodeInvalidArgument
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case errors.Is(err, process.ErrNotFound), errors.Is(err, process.ErrExited):
		return connect.CodeNotFound
	case errors.Is(err, process.ErrExists):
		return connect.CodeAlreadyExists
	case errors.Is(err, process.ErrOffset):
		return connect.CodeOutOfRange
	case errors.Is(err, process.ErrLimit):
		return connect.CodeResourceExhausted
	case errors.Is(err, process.ErrUnavailable), errors.Is(err, errStopping), errors.Is(err, errEnded):
		return connect.CodeUnavailable
	case errors.Is(err, process.ErrUnsupported):
		return connect.CodeUnimplemented
	case errors.Is(err, process.ErrPermission):
		return connect.CodePermissionDenied
	}
	return connect.CodeInternal
}

// gapError ends a stream whose reader fell behind what retention keeps, or
// asked for bytes that are gone. The original loses them in silence.
func gapError(g process.Gap) *connect.Error {
	return connect.NewError(connect.CodeDataLoss, fmt.Errorf(
		"bytes %d to %d of %s were freed by retention before this client read them; connect again with the header %s: %s=%d",
		g.From, g.To, g.Stream, headerFrom, g.Stream, g.To))
}

func errorf(code connect.Code, format string, args ...any) *connect.Error {
	return connect.NewError(code, fmt.Errorf(format, args...))
}
