package interpreter

import (
	"errors"
	"fmt"
)

// ErrNoExecution: no cell has this ID, it has not begun, or its output was freed.
var ErrNoExecution = errors.New("no execution with this id has begun, or its output is not kept any more")

// ContextError: no context has this ID.
type ContextError struct{ ID string }

func (e *ContextError) Error() string { return fmt.Sprintf("Context %.100s not found", e.ID) }

// LanguageError: there is no kernel for a language.
type LanguageError struct {
	Language string
	Why      string // completes "there is no kernel for the language …: "
}

func (e *LanguageError) Error() string {
	return fmt.Sprintf("there is no kernel for the language %.100q: %s", e.Language, e.Why)
}

// DirError: a kernel cannot work in a directory.
type DirError struct {
	Dir string
	Err error
}

func (e *DirError) Error() string { return fmt.Sprintf("Failed to set working directory: %v", e.Err) }
func (e *DirError) Unwrap() error { return e.Err }

// LimitError: a sandbox has as many contexts as it may have.
type LimitError struct{ Max int }

func (e *LimitError) Error() string {
	return fmt.Sprintf("this sandbox has %d contexts, which is the limit; remove some", e.Max)
}

// KernelError: a kernel did not start.
type KernelError struct {
	Why  string
	said string // by itself
}

func (e *KernelError) Error() string { return "the kernel did not start: " + e.Why }
