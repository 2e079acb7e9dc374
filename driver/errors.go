package driver

import (
	"errors"
	"fmt"

	"github.com/tend-run/tend/process"
)

var (
	ErrNotFound = errors.New("no such sandbox")
	ErrExists   = errors.New("the name is taken by another sandbox")
	// ErrUnsupported: this driver cannot do what was asked.
	ErrUnsupported = errors.New("not supported by this sandbox driver")
	// ErrStopped: the sandbox is stopped; start it first.
	ErrStopped = errors.New("the sandbox is stopped; start it first")
	// ErrPaused: the sandbox is paused; resume it first.
	ErrPaused = errors.New("the sandbox is paused; resume it first")
	// ErrLimit: there are as many sandboxes, templates or builds as there may be. It
	// matches process.ErrLimit.
	ErrLimit = fmt.Errorf("sandboxes: %w", process.ErrLimit)
	// ErrInUse: something that other things need cannot be removed.
	ErrInUse = errors.New("it is in use")
)

// InvalidError: a field of the request is wrong. Nothing was done.
type InvalidError struct {
	Field  string // "name", "run.env"
	Reason string // completes "<field> …"
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Reason }

// UnsupportedError: the driver cannot do what a field of the request asks for.
// Nothing was done. It matches [ErrUnsupported].
type UnsupportedError struct {
	Field  string // "shares", "size.disk"
	Reason string // what there is not, and what to do instead
}

func (e *UnsupportedError) Error() string {
	return e.Field + ": " + ErrUnsupported.Error() + ": " + e.Reason
}

func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }
