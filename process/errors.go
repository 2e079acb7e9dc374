package process

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Errors of lookup and life cycle.
var (
	ErrNotFound  = errors.New("no such process")
	ErrAmbiguous = errors.New("more than one process matches")
	ErrExists    = errors.New("a process with this id exists and was started with another spec")
	ErrExited    = errors.New("the process has exited")
	ErrRunning   = errors.New("the process is still running; kill it first")
	ErrLagged    = errors.New("the watcher fell behind; list again")
)

// Errors of input and terminals.
var (
	ErrStdinClosed = errors.New("stdin is closed, or was not asked for at the start")
	ErrPTY         = errors.New("the process has a terminal, not a stdin pipe")
	ErrNoPTY       = errors.New("the process has no terminal")
	ErrOffset      = errors.New("the offset is past the end of the stream")
	// ErrBrokenPipe: the process itself closed its stdin, or no process has the terminal
	// open any more. It wraps ErrStdinClosed.
	ErrBrokenPipe error = &narrowed{"nobody reads the input of the process any more (broken pipe)", ErrStdinClosed}
	// ErrWriterForgotten: so many other writers have written since that it is unknown how
	// many bytes of this writer were accepted; or others have written in the middle of its
	// write, since the rest of it did not come for ten seconds. A writer whose writes were all
	// acknowledged can continue under a new name.
	ErrWriterForgotten = errors.New("the writer is not known, was forgotten, or was away for so long in the middle of a write " +
		"that others have written since; whether the bytes were taken before is not known")
	// ErrInputFull: too much input waits for a process that does not read. It wraps
	// ErrLimit.
	ErrInputFull error = &narrowed{"the process does not read its input, and no more of it can wait", ErrLimit}
)

// PastEnd is an [ErrOffset] that says where the stream ends.
func PastEnd(s Stream, end, asked int64) error {
	return fmt.Errorf("%w: %s ends at %d, %d was asked for", ErrOffset, s, end, asked)
}

// narrowed is an error that says more than the one that it is, too.
type narrowed struct {
	text string
	err  error
}

func (e *narrowed) Error() string { return e.text }
func (e *narrowed) Unwrap() error { return e.err }

// Errors of the daemon and the machine.
var (
	// ErrUnavailable: the keeper or the server cannot be reached now. The
	// call may be repeated.
	ErrUnavailable = errors.New("the process runtime is not reachable now; try again")
	// ErrUnsupported: this machine does not support the request.
	ErrUnsupported = errors.New("not supported on this machine")
	// ErrLimit: a limit on processes, readers or descriptors is reached.
	ErrLimit = errors.New("a limit of the process runtime is reached")
	// ErrPermission: the daemon may not do this, or the caller may not request it.
	ErrPermission = errors.New("permission denied")
	// ErrDamaged: the process's files on the disk are damaged. Other processes are not
	// affected.
	ErrDamaged = errors.New("what is kept of the process is damaged")
)

// InvalidError is returned for an invalid field of a request. Nothing was done.
type InvalidError struct {
	Field  string // as in the Go types, lower case: "argv[3]"
	Reason string // completes "<field> …": "has 70000 words; the limit is 65536"
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Reason }

// AmbiguousError is returned if a selector matches several processes. It wraps
// ErrAmbiguous.
type AmbiguousError struct {
	What string // "2 running processes have the name \"web\""
	IDs  []ID   // of those, oldest first; the first ones of very many
}

func (e *AmbiguousError) Error() string {
	ids := make([]string, len(e.IDs))
	for i, id := range e.IDs {
		ids[i] = string(id)
	}
	return fmt.Sprintf("%v: %s; name one by its id: %s", ErrAmbiguous, e.What, strings.Join(ids, ", "))
}

func (e *AmbiguousError) Unwrap() error { return ErrAmbiguous }

// UnfinishedError says that the process has exited but cannot be removed yet, because
// something of it is left. It wraps ErrRunning.
type UnfinishedError struct {
	Left string // "pid 42 (sleep) of its tree runs"
}

func (e *UnfinishedError) Error() string {
	return "the process has exited, and is not over: " + e.Left
}

func (e *UnfinishedError) Unwrap() error { return ErrRunning }

// StartReason says at which step a start failed.
type StartReason uint8

const (
	StartNotFound   StartReason = iota + 1 // the program does not exist
	StartPermission                        // the program is not executable for the user
	StartFormat                            // the file is no program the kernel knows
	StartBadDir                            // the working directory is missing, no directory, or closed to the user
	StartBadUser                           // the user is unknown, or tend may not become it
	StartTooLong                           // argv and environment, or the program's path, exceed the kernel's limit
	StartResources                         // no processes, memory or descriptors left
	StartLimits                            // a limit of the spec could not be set
	StartPTY                               // no terminal could be opened
	StartOther
)

var startReasonNames = [...]string{"", "not_found", "permission_denied", "not_executable", "bad_cwd", "bad_user", "too_long",
	"resources", "limits", "pty", "other"}

func (r StartReason) String() string {
	if int(r) < len(startReasonNames) {
		return startReasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// StartError says that the process could not be started. No trace of it is left.
type StartError struct {
	Reason StartReason
	// What is the program, directory or user concerned.
	What string
	Err  error // the system's error, if there was one
}

// mostShown bounds in bytes how much of what a client has sent an error repeats.
const mostShown = 256

func shortened(text string) string {
	if len(text) <= mostShown {
		return text
	}
	cut := mostShown
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

func (e *StartError) Error() string {
	what := shortened(e.What)
	switch e.Reason {
	case StartNotFound:
		return fmt.Sprintf("program %q is not found; give a path, or a name that is in PATH", what)
	case StartPermission:
		return fmt.Sprintf("program %q may not be executed by this user", what)
	case StartFormat:
		return fmt.Sprintf("program %q is not an executable format (a script needs a #! line)", what)
	case StartBadDir:
		return fmt.Sprintf("working directory %q cannot be entered: %v", what, e.Err)
	case StartBadUser:
		return fmt.Sprintf("user %q cannot be used: %v", what, e.Err)
	case StartTooLong:
		if errors.Is(e.Err, syscall.ENAMETOOLONG) {
			return fmt.Sprintf("the program's path %.40q… is longer than the kernel allows (255 bytes a name, 4095 bytes in all)", what)
		}
		return "arguments and environment are longer than the kernel allows (one word at most 128 KiB, a quarter of the stack limit in all)"
	}
	// What says all here, the system's error included, but for managers that
	// know less.
	if e.Err == nil || strings.Contains(e.What, e.Err.Error()) {
		return fmt.Sprintf("the process could not be started (%s): %s", e.Reason, e.What)
	}
	return fmt.Sprintf("the process could not be started (%s): %s: %v", e.Reason, e.What, e.Err)
}

func (e *StartError) Unwrap() error { return e.Err }

// GapError is returned by a reader without events (an io.Reader) that met freed bytes.
type GapError struct{ Gap }

func (e *GapError) Error() string {
	return fmt.Sprintf("bytes %d to %d of %s were freed by retention before they were read", e.From, e.To, e.Stream)
}
