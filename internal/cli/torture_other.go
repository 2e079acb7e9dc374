//go:build !linux

package cli

import (
	"context"
	"errors"
)

// Run reports that there is no daemon to torture here.
func (c *tortureCmd) Run(context.Context, *invocation) error {
	return errors.New("tend serves on Linux only")
}

// Run is for the same daemon's processes.
func (c *tortureWorkCmd) Run(context.Context, *invocation) error {
	return errors.New("tend serves on Linux only")
}
