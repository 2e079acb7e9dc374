package native

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// manager has the processes that a call is for: those of the sandbox that its header
// names, else the machine's.
func (c *Config) manager(ctx context.Context) (process.Manager, error) {
	call, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return nil, errors.New("a call without its headers")
	}
	switch keys := call.RequestHeader().Values(tendpb.SandboxHeader); {
	case len(keys) == 0:
		return c.Manager, nil
	case len(keys) > 1 || keys[0] == "":
		return nil, &process.InvalidError{Field: tendpb.SandboxHeader,
			Reason: fmt.Sprintf("comes %d times, or is empty; leave it out for the machine, or name one sandbox", len(keys))}
	default:
		s, err := find(ctx, c.Driver, keys[0])
		if err != nil {
			return nil, err
		}
		return s.Processes(), nil
	}
}

// find returns the sandbox with an ID or name.
func find(ctx context.Context, d driver.Driver, key string) (driver.Sandbox, error) {
	if d == nil {
		return nil, unsupported("sandboxes")
	}
	if key == "" || len(key) > driver.MaxName {
		return nil, &process.InvalidError{Field: "sandbox", Reason: fmt.Sprintf("has %d bytes; an ID or a name of 1 to %d is needed",
			len(key), driver.MaxName)}
	}
	s, err := d.Get(ctx, key)
	if errors.Is(err, driver.ErrNotFound) {
		return nil, fmt.Errorf("sandbox %q: %w", key, driver.ErrNotFound)
	}
	return s, err
}

// wireError is the error for the wire. It knows the errors of drivers, too.
func wireError(err error) *connect.Error {
	if e, ok := errors.AsType[*driver.InvalidError](err); ok {
		return tendpb.Error(&process.InvalidError{Field: e.Field, Reason: e.Reason})
	}
	if busy, ok := errors.AsType[*budget.BusyError](err); ok {
		return tendpb.Error(errtext.New(busy.Error(), process.ErrLimit))
	}
	for _, known := range []struct{ driver, wire error }{
		{driver.ErrNotFound, process.ErrNotFound},
		{driver.ErrExists, process.ErrExists},
		{driver.ErrUnsupported, process.ErrUnsupported},
		{driver.ErrStopped, tendpb.ErrSandboxStopped},
		{driver.ErrPaused, tendpb.ErrSandboxPaused},
		{driver.ErrInUse, tendpb.ErrInUse},
	} {
		if errors.Is(err, known.driver) {
			return tendpb.Error(errtext.New(err.Error(), known.wire))
		}
	}
	return tendpb.Error(err)
}
