//go:build !linux

package cli

import (
	"context"
	"fmt"

	"github.com/tend-run/tend/process"
)

type startupCmd struct{}

func (*startupCmd) Run(context.Context, *invocation) error {
	return fmt.Errorf("services of the system: %w on this system; have it run: tend serve --keep", process.ErrUnsupported)
}

type onStopCmd struct{}

func (*onStopCmd) Run(context.Context, *invocation) error { return process.ErrUnsupported }
