package driver

import (
	"errors"
	"fmt"

	"github.com/tend-run/tend/process"
)

var (
	ErrNotFound = errors.New("no such sandbox")
	ErrExists   = errors.New("the name is taken by another sandbox")
	// ErrUnsupported: this driver does not support the request.
	ErrUnsupported = errors.New("not supported by this sandbox driver")
	// ErrStopped: the sandbox is stopped; start it first.
	ErrStopped = errors.New("the sandbox is stopped; start it first")
	// ErrPaused: the sandbox is paused; resume it first.
	ErrPaused = errors.New("the sandbox is paused; resume it first")
	// ErrLimit: the limit of sandboxes, templates or builds is reached. It matches
	// process.ErrLimit.
	ErrLimit = fmt.Errorf("sandboxes: %w", process.ErrLimit)
	// ErrInUse: an object that others still need cannot be removed.
	ErrInUse = errors.New("it is in use")
)

// InvalidError says that a field of the request is invalid. Nothing was done.
type InvalidError struct {
	Field  string // "name", "run.env"
	Reason string // completes "<field> …"
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Reason }

// UnsupportedError says that the driver does not support a field of the request.
// Nothing was done. It matches [ErrUnsupported].
type UnsupportedError struct {
	Field  string // "shares", "size.disk"
	Reason string // what is missing, and what to do instead
}

func (e *UnsupportedError) Error() string {
	return e.Field + ": " + ErrUnsupported.Error() + ": " + e.Reason
}

func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }
