package box

import (
	"errors"

	"github.com/tend-run/tend/process"
)

// Errors of boxes.
var (
	// ErrNotFound is a process.ErrNotFound, too.
	ErrNotFound error = &narrowed{"no such box", process.ErrNotFound}
	// ErrEnded: the box is there no more, and what ended it was no End.
	ErrEnded = errors.New("the sandbox has ended")
	// ErrFrozen: nothing can start in a frozen box.
	ErrFrozen = errors.New("the sandbox is paused")
	// ErrExists is a process.ErrExists, too.
	ErrExists error = &narrowed{"a box with this id was made with another spec", process.ErrExists}
)

// narrowed is an error that says more than the one that it is, too.
type narrowed struct {
	text string
	err  error
}

func (e *narrowed) Error() string { return e.text }
func (e *narrowed) Unwrap() error { return e.err }
