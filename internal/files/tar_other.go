//go:build !linux

package files

import (
	"context"
	"errors"
	"io"
)

// Extract is for Linux only.
func (f FS) Extract(context.Context, io.Reader, string, ExtractOptions) (Extracted, error) {
	return Extracted{}, errors.ErrUnsupported
}
