//go:build !unix

package atomicfile

import (
	"context"
	"errors"
	"os"
)

// Lock is for Unix.
func Lock(_ context.Context, path string) (func(), error) {
	return nil, &os.PathError{Op: "lock", Path: path, Err: errors.ErrUnsupported}
}
