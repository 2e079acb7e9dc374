//go:build unix

package git

import (
	"os"
	"syscall"
)

// deviceOf is the filesystem that a directory is in.
func deviceOf(dir string) (uint64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	return uint64(info.Sys().(*syscall.Stat_t).Dev), nil //nolint:unconvert // its type differs by system
}
