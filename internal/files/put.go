package files

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// Put makes a small regular file with this content and mode, whatever the umask is, and
// its parents. One that is there is replaced in its place.
func (a *Actor) Put(path string, data []byte, mode fs.FileMode) error {
	if err := a.ensureDir(filepath.Dir(path)); err != nil {
		return err
	}
	file, created, err := a.create(path)
	if err != nil {
		return pathError("write", path, err)
	}
	if !created {
		err = file.Truncate(0)
	}
	if err == nil {
		err = a.give(file, created)
	}
	if err == nil {
		_, err = file.Write(data)
	}
	if err == nil {
		err = file.Chmod(mode)
	}
	return pathError("write", path, errors.Join(err, file.Close()))
}
