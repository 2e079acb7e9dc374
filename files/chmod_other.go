//go:build !linux

package files

import (
	"io/fs"
	"os"
)

func chmod(path string, change func(fs.FileMode) fs.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Chmod(path, change(info.Mode().Perm()).Perm())
}
