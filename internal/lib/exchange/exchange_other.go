//go:build !linux

package exchange

import "os"

func remove(*os.File, string, string, func(*os.File) bool) (bool, error) { return false, nil }

func swap(*os.File, string, string, func(*os.File) bool) (bool, error) { return false, nil }
