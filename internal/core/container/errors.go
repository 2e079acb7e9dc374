package container

import (
	"errors"

	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

// Errors of containers.
var (
	// ErrNotFound is a process.ErrNotFound, too.
	ErrNotFound = errtext.New("no such container", process.ErrNotFound)
	// ErrEnded: the container is there no more, and what ended it was no End.
	ErrEnded = errors.New("the sandbox has ended")
	// ErrFrozen: nothing can start in a frozen container.
	ErrFrozen = errors.New("the sandbox is paused")
	// ErrExists is a process.ErrExists, too.
	ErrExists = errtext.New("a container with this id was made with another spec", process.ErrExists)
)
