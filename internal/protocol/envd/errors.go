package envd

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/process"
)

// errStopping is the cause of streams that end because the server stops.
var errStopping = errors.New("the server is stopping; the process goes on: connect again")

// errEnded takes its place where the process has ended, and the client does not know
// it yet.
var errEnded = errors.New("the server is stopping; the process has ended: connect again for how it did")

// errSandboxEnded takes the place of an end event where a process was killed with its
// sandbox.
var errSandboxEnded = errors.New("the sandbox was ended while the process ran")

// errClientLeft is the cause of streams whose client has closed its side.
var errClientLeft = errors.New("the client has left")

// wireErr is the one table from the errors of the domain to Connect's codes.
// Errors that carry a code already pass unchanged; nil stays nil.
func wireErr(err error) *connect.Error {
	if err == nil {
		return nil
	}
	if coded, ok := errors.AsType[*connect.Error](err); ok {
		return coded
	}
	if gap, ok := errors.AsType[*process.GapError](err); ok {
		return gapError(gap.Gap)
	}
	return connect.NewError(codeOf(err), err)
}

func codeOf(err error) connect.Code {
	if _, ok := errors.AsType[*process.InvalidError](err); ok {
		return connect.CodeInvalidArgument
	}
	if _, ok := errors.AsType[*budget.BusyError](err); ok {
		return connect.CodeResourceExhausted
	}
	for _, known := range [...]struct {
		err  error
		code connect.Code
	}{
		{context.DeadlineExceeded, connect.CodeDeadlineExceeded}, {context.Canceled, connect.CodeCanceled},
		{process.ErrNotFound, connect.CodeNotFound}, {process.ErrExited, connect.CodeNotFound},
		{process.ErrExists, connect.CodeAlreadyExists}, {process.ErrOffset, connect.CodeOutOfRange},
		{process.ErrLimit, connect.CodeResourceExhausted},
		{process.ErrUnavailable, connect.CodeUnavailable}, {errStopping, connect.CodeUnavailable}, {errEnded, connect.CodeUnavailable},
		{errSandboxEnded, connect.CodeUnavailable},
		{process.ErrUnsupported, connect.CodeUnimplemented}, {process.ErrPermission, connect.CodePermissionDenied},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
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
