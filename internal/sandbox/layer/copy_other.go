//go:build !linux

package layer

import (
	"context"
	"errors"
)

func copyTree(context.Context, []string, string, *Meta, bool, *Info) error {
	return errors.ErrUnsupported
}

func countTree(context.Context, string) (entries, bytes int64, err error) {
	return 0, 0, errors.ErrUnsupported
}

func openTree(string, string) error { return errors.ErrUnsupported }

func syncAll(string) error { return nil }

func bootID() string { return "" }
