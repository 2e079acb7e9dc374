//go:build !linux

package layer

import (
	"context"
	"errors"
)

func copyTree(context.Context, []string, string, Limits, bool, *Info) error {
	return errors.ErrUnsupported
}

func syncAll(string) error { return nil }

func bootID() string { return "" }
