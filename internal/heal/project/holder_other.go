//go:build !linux

package project

import (
	"context"

	"github.com/tend-run/tend/process"
)

// EndHolder implements Project.
func (l *Local) EndHolder(context.Context, int, []int, bool) (string, error) {
	return "", process.ErrUnsupported
}
