// Package atomicfile writes files that others read at any moment: they see the
// old content or the new one, never a part.
//
// File does not wait for the disk, and so costs microseconds where Synced costs
// milliseconds. It is for facts that a power loss makes worthless anyway: where the
// daemon listens, which process has which role. Lock is for a file whose new content
// depends on the old one.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// File makes data the content of the file at path, with these permissions,
// whatever the umask.
func File(path string, data []byte, perm os.FileMode) error {
	return write(path, data, perm, func(*os.File) error { return nil })
}

// Synced is File for what must be there after a loss of power: the name never
// stands for content that is not on the disk.
func Synced(path string, data []byte, perm os.FileMode) error {
	return write(path, data, perm, (*os.File).Sync)
}

func write(path string, data []byte, perm os.FileMode, sync func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(perm), sync(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
		if fi, lerr := os.Lstat(path); err != nil && lerr == nil && fi.IsDir() {
			err = fmt.Errorf("%s is a directory where a file is written; remove it", path)
		}
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
