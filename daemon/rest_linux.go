package daemon

import (
	"context"

	"github.com/tend-run/tend/keeper/rest"
	"github.com/tend-run/tend/process"
)

// used says that the server is used when a process is started, whoever starts it: for
// services there is no request.
type used struct {
	process.Manager
	rest *rest.Rest
}

func (u used) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	u.rest.Used()
	return u.Manager.Start(ctx, spec)
}
