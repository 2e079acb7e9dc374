package tendpb

import (
	"context"
	"errors"
	"syscall"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

// sentinels is the table of errors without data: what the domain calls them,
// their detail, and the code for clients that know no details.
var sentinels = []struct {
	err  error
	kind tendv1.ErrorKind
	code connect.Code
}{
	{process.ErrNotFound, tendv1.ErrorKind_ERROR_KIND_NOT_FOUND, connect.CodeNotFound},
	{process.ErrAmbiguous, tendv1.ErrorKind_ERROR_KIND_AMBIGUOUS, connect.CodeInvalidArgument},
	{process.ErrExists, tendv1.ErrorKind_ERROR_KIND_EXISTS, connect.CodeAlreadyExists},
	{process.ErrExited, tendv1.ErrorKind_ERROR_KIND_EXITED, connect.CodeFailedPrecondition},
	{process.ErrRunning, tendv1.ErrorKind_ERROR_KIND_RUNNING, connect.CodeFailedPrecondition},
	{process.ErrLagged, tendv1.ErrorKind_ERROR_KIND_LAGGED, connect.CodeAborted},
	{process.ErrStdinClosed, tendv1.ErrorKind_ERROR_KIND_STDIN_CLOSED, connect.CodeFailedPrecondition},
	{process.ErrPTY, tendv1.ErrorKind_ERROR_KIND_PTY, connect.CodeFailedPrecondition},
	{process.ErrNoPTY, tendv1.ErrorKind_ERROR_KIND_NO_PTY, connect.CodeFailedPrecondition},
	{process.ErrWriterForgotten, tendv1.ErrorKind_ERROR_KIND_WRITER_FORGOTTEN, connect.CodeAborted},
	{process.ErrOffset, tendv1.ErrorKind_ERROR_KIND_OFFSET, connect.CodeOutOfRange},
	{process.ErrUnavailable, tendv1.ErrorKind_ERROR_KIND_UNAVAILABLE, connect.CodeUnavailable},
	{process.ErrUnsupported, tendv1.ErrorKind_ERROR_KIND_UNSUPPORTED, connect.CodeUnimplemented},
	{process.ErrLimit, tendv1.ErrorKind_ERROR_KIND_LIMIT, connect.CodeResourceExhausted},
	{process.ErrPermission, tendv1.ErrorKind_ERROR_KIND_PERMISSION, connect.CodePermissionDenied},
	{process.ErrDamaged, tendv1.ErrorKind_ERROR_KIND_DAMAGED, connect.CodeDataLoss},
	{ErrSandboxStopped, tendv1.ErrorKind_ERROR_KIND_SANDBOX_STOPPED, connect.CodeFailedPrecondition},
	{ErrSandboxPaused, tendv1.ErrorKind_ERROR_KIND_SANDBOX_PAUSED, connect.CodeFailedPrecondition},
	{ErrInUse, tendv1.ErrorKind_ERROR_KIND_IN_USE, connect.CodeFailedPrecondition},
}

// Errors about sandboxes that the domain of processes does not have. The server turns
// its driver's into these; the Go client returns them.
var (
	ErrSandboxStopped = errors.New("the sandbox is stopped; start it first")
	ErrSandboxPaused  = errors.New("the sandbox is paused; resume it first")
	ErrInUse          = errors.New("it is in use")
)

// ChangedError: something is not done, since files have changed meanwhile.
type ChangedError struct {
	Text  string   // for people
	Paths []string // of those files, the first ones
}

func (e *ChangedError) Error() string { return e.Text }

// SandboxHeader names, by ID or name, the sandbox that a call is for.
const SandboxHeader = "Tend-Sandbox"

// A GET of DialPath, with the query "sandbox" (an ID or name) and "port", and the headers
// "Connection: Upgrade" and "Upgrade: " + DialProtocol, is answered with 101; from there on
// the connection is one to that TCP port inside. Errors have the form of the other calls'.
// It needs HTTP/1.1.
const (
	DialPath     = "/tend.v1.SandboxService/Dial"
	DialProtocol = "tend-port"
)

// narrower are errors that clients of a former version know by a wider kind:
// they are sent as the cause of an error of that kind.
var narrower = []struct {
	err  error
	kind tendv1.ErrorKind
}{
	{process.ErrBrokenPipe, tendv1.ErrorKind_ERROR_KIND_BROKEN_PIPE},
	{process.ErrInputFull, tendv1.ErrorKind_ERROR_KIND_INPUT_FULL},
}

// startCodes says how a failed start looks to clients that know no details.
var startCodes = map[process.StartReason]connect.Code{
	process.StartNotFound:   connect.CodeNotFound,
	process.StartPermission: connect.CodePermissionDenied,
	process.StartFormat:     connect.CodeInvalidArgument,
	process.StartBadDir:     connect.CodeInvalidArgument,
	process.StartBadUser:    connect.CodeInvalidArgument,
	process.StartTooLong:    connect.CodeInvalidArgument,
	process.StartResources:  connect.CodeResourceExhausted,
	process.StartLimits:     connect.CodeInvalidArgument,
	process.StartPTY:        connect.CodeResourceExhausted,
	process.StartOther:      connect.CodeInternal,
}

// Error turns a domain error into one for the wire. A context that ended under
// the handler is "unavailable": to a client that is still there it means that
// the server stops.
func Error(err error) *connect.Error {
	if done, ok := errors.AsType[*connect.Error](err); ok {
		return done
	}
	code, detail := connect.CodeInternal, &tendv1.ErrorDetail{}
	if e, ok := errors.AsType[*process.InvalidError](err); ok {
		code = connect.CodeInvalidArgument
		detail.Kind, detail.Field, detail.Reason = tendv1.ErrorKind_ERROR_KIND_INVALID, text(e.Field), text(e.Reason)
	} else if e, ok := errors.AsType[*process.StartError](err); ok {
		code = connect.CodeInternal
		if c, ok := startCodes[e.Reason]; ok {
			code = c
		}
		detail.Kind, detail.StartReason, detail.What = tendv1.ErrorKind_ERROR_KIND_START, tendv1.StartReason(e.Reason),
			text(e.What[:min(len(e.What), maxText)])
		if e.Err != nil {
			detail.SystemError = text(e.Err.Error())
			if no, ok := errors.AsType[syscall.Errno](e.Err); ok {
				detail.Errno = int32(no)
			}
			for _, s := range sentinels {
				if errors.Is(e.Err, s.err) {
					detail.Cause = s.kind
					break
				}
			}
		}
	} else if e, ok := errors.AsType[*process.AmbiguousError](err); ok {
		code = connect.CodeInvalidArgument
		detail.Kind, detail.What = tendv1.ErrorKind_ERROR_KIND_AMBIGUOUS, text(e.What)
		for _, id := range e.IDs {
			detail.Ids = append(detail.Ids, string(id))
		}
	} else if e, ok := errors.AsType[*process.UnfinishedError](err); ok {
		code = connect.CodeFailedPrecondition
		detail.Kind, detail.What = tendv1.ErrorKind_ERROR_KIND_RUNNING, text(e.Left)
	} else if e, ok := errors.AsType[*ChangedError](err); ok {
		code, detail.Kind = connect.CodeFailedPrecondition, tendv1.ErrorKind_ERROR_KIND_CHANGED
		for _, path := range e.Paths {
			detail.Paths = append(detail.Paths, text(path))
		}
	} else if e, ok := errors.AsType[*process.GapError](err); ok {
		code = connect.CodeOutOfRange
		detail.Kind, detail.Gap = tendv1.ErrorKind_ERROR_KIND_GAP, Gap(e.Gap)
	} else {
		for _, s := range sentinels {
			if errors.Is(err, s.err) {
				code, detail.Kind = s.code, s.kind
				break
			}
		}
		for _, n := range narrower {
			if errors.Is(err, n.err) {
				detail.Cause = n.kind
			}
		}
		if detail.Kind == 0 && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
			code, detail.Kind = connect.CodeUnavailable, tendv1.ErrorKind_ERROR_KIND_UNAVAILABLE
		}
	}
	out := connect.NewError(code, errors.New(text(err.Error())))
	if detail.Kind != 0 {
		if d, err := connect.NewErrorDetail(detail); err == nil {
			out.AddDetail(d)
		}
	}
	return out
}

// FromError turns an error of the wire into the domain's. Its text is the
// server's; errors.Is and errors.As find what the server knew. Errors without
// a detail are returned as they are.
func FromError(err error) error {
	wire, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	for _, d := range wire.Details() {
		value, err := d.Value()
		if err != nil {
			continue // a detail of a type this client does not know
		}
		if detail, ok := value.(*tendv1.ErrorDetail); ok {
			if detail.GetKind() == tendv1.ErrorKind_ERROR_KIND_CHANGED {
				return toChanged(detail, CleanText(wire.Message()))
			}
			if known := fromDetail(detail); known != nil {
				return said(CleanText(wire.Message()), known)
			}
		}
	}
	if wire.Code() == connect.CodeUnauthenticated || wire.Code() == connect.CodePermissionDenied {
		return errtext.New("the server refuses the token, or wants one: "+CleanText(wire.Message()), process.ErrPermission)
	}
	if text := CleanText(wire.Message()); text != wire.Message() {
		return connect.NewError(wire.Code(), errors.New(text))
	}
	return err
}

func toChanged(d *tendv1.ErrorDetail, said string) error {
	e := &ChangedError{Text: said}
	for _, path := range d.GetPaths() {
		e.Paths = append(e.Paths, CleanText(path))
	}
	return e
}

func fromDetail(d *tendv1.ErrorDetail) error {
	switch d.GetKind() {
	case tendv1.ErrorKind_ERROR_KIND_INVALID:
		return &process.InvalidError{Field: CleanName(d.GetField()), Reason: CleanText(d.GetReason())}
	case tendv1.ErrorKind_ERROR_KIND_AMBIGUOUS:
		if len(d.GetIds()) == 0 {
			return process.ErrAmbiguous
		}
		e := &process.AmbiguousError{What: CleanName(d.GetWhat())}
		for _, id := range d.GetIds() {
			if id := process.ID(id); id.Validate() == nil {
				e.IDs = append(e.IDs, id)
			}
		}
		return e
	case tendv1.ErrorKind_ERROR_KIND_RUNNING:
		if d.GetWhat() == "" {
			return process.ErrRunning
		}
		return &process.UnfinishedError{Left: CleanText(d.GetWhat())}
	case tendv1.ErrorKind_ERROR_KIND_START:
		e := &process.StartError{Reason: process.StartReason(d.GetStartReason()), What: CleanText(d.GetWhat())}
		if cause := sentinel(d.GetCause()); cause != nil {
			e.Err = said(CleanText(d.GetSystemError()), cause)
		} else if d.GetErrno() > 0 && d.GetErrno() < 4096 {
			e.Err = said(CleanText(d.GetSystemError()), syscall.Errno(d.GetErrno()))
		} else if d.GetSystemError() != "" {
			e.Err = errors.New(CleanText(d.GetSystemError()))
		}
		return e
	case tendv1.ErrorKind_ERROR_KIND_GAP:
		return &process.GapError{Gap: ToGap(d.GetGap())}
	}
	for _, n := range narrower {
		if d.GetCause() == n.kind {
			return n.err
		}
	}
	return sentinel(d.GetKind())
}

func sentinel(kind tendv1.ErrorKind) error {
	for _, s := range sentinels {
		if s.kind == kind {
			return s.err
		}
	}
	return nil
}

// said gives an error the text of the other side where that is another one.
func said(text string, err error) error {
	if text == "" || text == err.Error() {
		return err
	}
	return errtext.New(text, err)
}
