//go:build !unix

package testbin

import (
	"errors"
	"os"
)

// lockFile fails: the roles run on Linux.
func lockFile(*os.File) error { return errors.ErrUnsupported }
