package files

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// handle stands for what a path led to when it was opened, whatever takes the
// name after that.
type handle struct {
	file *os.File
	root *Root // that it was opened in; nil: this machine
}

// follow opens what the path leads to, through all links.
func (a *Actor) follow(path string) (*handle, error) { return a.open(path, true) }

// nofollow opens what has the name: of a link the link.
func (a *Actor) nofollow(path string) (*handle, error) { return a.open(path, false) }

func (a *Actor) open(path string, follow bool) (*handle, error) {
	h, err := a.openAnywhere(path, follow)
	if a.within == "" || a.within == "/" {
		return h, err
	}
	if err != nil {
		// Nobody learns what there is elsewhere.
		if path != a.within && path != "/" && a.leadsOut(filepath.Dir(path)) {
			err = ErrOutside
		}
		return nil, err
	}
	real, err := h.real()
	if err == nil && real != a.within && !strings.HasPrefix(real, a.within+"/") {
		err = ErrOutside
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// leadsOut reports whether the path, or what there is of it, leads out of within.
func (a *Actor) leadsOut(path string) bool {
	h, err := a.open(path, true)
	if err == nil {
		h.close()
	}
	return errors.Is(err, ErrOutside)
}

func (a *Actor) openAnywhere(path string, follow bool) (*handle, error) {
	if a.root == nil {
		return openHandle(path, follow)
	}
	file, err := a.root.open(a, path, handleFlags(follow))
	if err != nil {
		return nil, err
	}
	return &handle{file, a.root}, nil
}

// parent opens the directory that the path's last name is in, for a change of what
// is there.
func (a *Actor) parent(path string) (dir *handle, name string, err error) {
	top, name := split(path)
	if dir, err = a.follow(top); err != nil {
		return nil, "", err
	}
	info, err := dir.info()
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = dir.mayChange()
	}
	if err != nil {
		dir.close()
		return nil, "", err
	}
	return dir, name, nil
}

// split parts an absolute path at its last name. It does not clean it: what is before ".."
// in the text of a link may be a link, too.
func split(path string) (dir, name string) {
	cut := strings.LastIndexByte(path, '/')
	return cmp.Or(path[:cut], "/"), cmp.Or(path[cut+1:], ".")
}

// pathOfLink is where a link in a directory leads, an absolute path for split.
func pathOfLink(dir, text string) string {
	if filepath.IsAbs(text) {
		return text
	}
	return dir + "/" + text
}

func (h *handle) info() (fs.FileInfo, error) {
	info, err := h.file.Stat()
	if err == nil {
		h.root.shift(info)
	}
	return info, err
}

// mayChange refuses all changes of what the kernel makes up for a sandbox: root inside
// does them with rights that its processes do not have.
func (h *handle) mayChange() error {
	if h.root == nil {
		return nil
	}
	pseudo, err := h.isPseudo()
	if err == nil && pseudo {
		err = syscall.EACCES
	}
	return err
}

// close: the error of closing what was only looked at says nothing.
func (h *handle) close() { _ = h.file.Close() }
