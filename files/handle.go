package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// handle stands for what a path led to when it was opened, whatever takes the
// name after that.
type handle struct{ file *os.File }

// follow opens what the path leads to, through all links.
func (a *Actor) follow(path string) (*handle, error) { return openHandle(path, true) }

// nofollow opens what has the name: of a link the link.
func (a *Actor) nofollow(path string) (*handle, error) { return openHandle(path, false) }

// parent opens the directory that the path's last name is in.
func (a *Actor) parent(path string) (dir *handle, name string, err error) {
	dir, err = a.follow(filepath.Dir(path))
	if err != nil {
		return nil, "", err
	}
	info, err := dir.info()
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		dir.close()
		return nil, "", err
	}
	if path == "/" {
		return dir, ".", nil
	}
	return dir, filepath.Base(path), nil
}

func (h *handle) info() (fs.FileInfo, error) { return h.file.Stat() }

// close: the error of closing what was only looked at says nothing.
func (h *handle) close() { _ = h.file.Close() }
