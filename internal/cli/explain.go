package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// explain returns the text of err with what the person can do about it.
func explain(err error) string {
	text := err.Error()
	hint := ""
	_, says := errors.AsType[*keyError](err)
	switch {
	case says: // what to do
	case errors.Is(err, tend.ErrSandboxStopped):
		hint = "tend sandbox start starts it"
	case errors.Is(err, tend.ErrSandboxPaused):
		hint = "tend sandbox resume does"
	case errors.Is(err, process.ErrNotFound) && strings.Contains(text, "no such sandbox"):
		hint = "tend sandbox ls lists all that are known"
	case errors.Is(err, process.ErrNotFound):
		hint = "tend ps -a lists all that are known"
	case errors.Is(err, process.ErrAmbiguous):
		hint = "tend ps -a shows them all"
	case errors.Is(err, process.ErrRunning):
		hint = "tend kill ends it, tend rm -f does both"
	case errors.Is(err, process.ErrStdinClosed):
		hint = "start it with tend run -i, or with -t for a terminal"
	case errors.Is(err, context.DeadlineExceeded):
		hint = "the daemon did not answer in time; tend status shows how it is"
	}
	if hint == "" || strings.Contains(text, hint) {
		return text
	}
	return text + " (" + hint + ")"
}

// diagnosed is explain with what our own daemon's role is to blame for a daemon that
// does not answer: found without asking it.
func (inv *invocation) diagnosed(err error) string {
	text := explain(err)
	if inv.flags == nil || inv.flags.URL != "" || !errors.Is(err, process.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return text
	}
	dir, derr := inv.stateDir()
	if derr != nil {
		return text
	}
	if why := silent(dir); why != "" && !strings.Contains(text, why) {
		return text + ": " + why
	}
	return text
}

// about adds the words by which the person named a process.
func about(id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", id, err)
}

// runError is a failure of "tend run" before the process had a status.
type runError struct {
	status int
	err    error
}

func (e *runError) Error() string { return e.err.Error() }
func (e *runError) Unwrap() error { return e.err }

// runFailure gives err the status that env(1), nohup(1) and docker(1) use.
func runFailure(err error) error {
	if err == nil {
		return nil
	}
	status := 125
	if start, ok := errors.AsType[*process.StartError](err); ok {
		switch start.Reason {
		case process.StartNotFound:
			status = 127
		case process.StartPermission, process.StartFormat:
			status = 126
		}
	}
	return &runError{status: status, err: err}
}
