//go:build !linux

package image

import (
	"context"
	"errors"
	"time"
)

// Least and Most bytes of a disk.
const (
	Least = 16 << 20
	Most  = 8 << 40
)

// Able is errors.ErrUnsupported here, as are all.
func Able() error { return errors.ErrUnsupported }

func FileSize(bytes int64) int64                { return bytes }
func Make(context.Context, string, int64) error { return errors.ErrUnsupported }
func Used(string) int64                         { return 0 }
func Repair(context.Context, string, time.Duration) (bool, error) {
	return false, errors.ErrUnsupported
}
