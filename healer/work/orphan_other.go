//go:build !linux

package work

import (
	"context"

	"github.com/tend-run/tend/process"
)

func (w *worker) endHolder(context.Context, int) (string, error) { return "", process.ErrUnsupported }

func (w *worker) endOrphans(context.Context) (string, error) { return "", process.ErrUnsupported }
