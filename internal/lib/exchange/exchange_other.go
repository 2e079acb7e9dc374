//go:build !linux

package exchange

import (
	"errors"
	"os"
)

func remove(*os.File, string, string, func(*os.File) bool) (bool, error) { return false, nil }

func swap(*os.File, string, string, func(*os.File) bool) (bool, error) { return false, nil }

func swapDirs(*os.File, string, *os.File, string) error { return errors.ErrUnsupported }
