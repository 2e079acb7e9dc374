package daemon

import (
	"context"

	"github.com/tend-run/tend/internal/core/idletrim"
	"github.com/tend-run/tend/process"
)

// used reports use of the server when a process starts, whoever starts it, because a
// start of a service is not a request.
type used struct {
	process.Manager
	rest *idletrim.Trimmer
}

func (u used) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	u.rest.Used()
	return u.Manager.Start(ctx, spec)
}
