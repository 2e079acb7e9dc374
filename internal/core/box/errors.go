package box

import (
	"errors"

	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

// Errors of boxes.
var (
	// ErrNotFound is a process.ErrNotFound, too.
	ErrNotFound = errtext.New("no such box", process.ErrNotFound)
	// ErrEnded: the box is there no more, and what ended it was no End.
	ErrEnded = errors.New("the sandbox has ended")
	// ErrFrozen: nothing can start in a frozen box.
	ErrFrozen = errors.New("the sandbox is paused")
	// ErrExists is a process.ErrExists, too.
	ErrExists = errtext.New("a box with this id was made with another spec", process.ErrExists)
)
