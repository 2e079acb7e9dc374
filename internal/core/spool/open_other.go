//go:build !linux

package spool

import (
	"os"
	"path/filepath"
)

// open opens a file of a process's directory, if it is a regular one.
func open(dir, name string, flags int) (*os.File, error) {
	path := filepath.Join(dir, name)
	if fi, err := os.Lstat(path); err == nil && !fi.Mode().IsRegular() {
		return nil, broken(path, kindOf(fi.Mode()))
	}
	return os.OpenFile(path, flags, 0o600)
}

func nextData(_ *os.File, at, _ int64) int64 { return at }
