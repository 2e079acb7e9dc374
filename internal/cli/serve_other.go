//go:build !linux

package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// Run says that there is no daemon here. The other commands work with a
// daemon elsewhere.
func (c *serveCmd) Run(_ context.Context, inv *invocation) error {
	if _, err := c.plan(inv); err != nil {
		return err
	}
	return fmt.Errorf("tend serve needs Linux; on %s use a daemon elsewhere through --url or TEND_URL", runtime.GOOS)
}

type serverCmd struct{ serveFlags }

func (c *serverCmd) Run(context.Context, *invocation) error {
	return fmt.Errorf("the server role needs Linux; this is %s", runtime.GOOS)
}

func kept(string) bool { return false }

func lives(string) bool { return false }

func silent(string) string  { return "" }
func trouble(string) string { return "" }
func continueRoles(string)  {}
func owned(string) error    { return nil }
func end(string) error      { return errors.ErrUnsupported }

// leftBehind: no daemon runs here.
func leftBehind(context.Context, string) bool { return false }
