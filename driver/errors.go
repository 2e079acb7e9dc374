package driver

import "errors"

var (
	ErrNotFound = errors.New("no such sandbox")
	ErrExists   = errors.New("the name is taken by another sandbox")
	// ErrUnsupported: this driver cannot do what was asked.
	ErrUnsupported = errors.New("not supported by this sandbox driver")
	// ErrStopped: the sandbox is stopped; start it first.
	ErrStopped = errors.New("the sandbox is stopped; start it first")
)

// InvalidError: a field of the request is wrong. Nothing was done.
type InvalidError struct {
	Field  string // "name", "run.env"
	Reason string // completes "<field> …"
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Reason }
