// Package replace writes files that others read at any moment: they see the
// old content or the new one, never a part.
//
// It does not wait for the disk, in contrast to renameio, and so costs
// microseconds where that costs milliseconds. It is for facts that a power
// loss makes worthless anyway: where the daemon listens, who plays which role.
package replace

import (
	"errors"
	"os"
	"path/filepath"
)

// File makes data the content of the file at path, with these permissions,
// whatever the umask.
func File(path string, data []byte, perm os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(perm), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
