package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// maxNames bounds the names of one directory.
const maxNames = 1_000_000

// Stat describes what the path leads to.
func (a *Actor) Stat(path string) (fs.FileInfo, error) {
	info, err := a.stat(path, true)
	return info, pathError("stat", path, err)
}

// Lstat describes the file with the name; it does not follow a link.
func (a *Actor) Lstat(path string) (fs.FileInfo, error) {
	info, err := a.stat(path, false)
	return info, pathError("stat", path, err)
}

func (a *Actor) stat(path string, follow bool) (fs.FileInfo, error) {
	h, err := a.open(path, follow)
	if err != nil {
		return nil, err
	}
	defer h.close()
	return h.info()
}

// Born returns the creation time of the file with the name, without following a link;
// zero if unknown.
func (a *Actor) Born(path string) time.Time {
	h, err := a.nofollow(path)
	if err != nil {
		return time.Time{}
	}
	defer h.close()
	return h.born()
}

// Real is the path without links.
func (a *Actor) Real(path string) (string, error) {
	h, err := a.follow(path)
	if err != nil {
		return "", pathError("resolve", path, err)
	}
	defer h.close()
	real, err := h.real()
	return real, pathError("resolve", path, err)
}

// Name is an entry of a directory.
type Name struct {
	Name string
	Type fs.FileMode // the type bits
}

// Names are the entries of the directory, in lexical order. More than a
// million are [ErrTooMany].
func (a *Actor) Names(dir string) ([]Name, error) {
	h, err := a.follow(dir)
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	defer h.close()
	names, err := a.names(h)
	return names, pathError("list", dir, err)
}

// names opens nothing but directories: to open a FIFO waits for its other end, and to open a
// device may have effects.
func (a *Actor) names(h *handle) ([]Name, error) {
	info, err := h.info()
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, err
	}
	d, err := os.Open(h.self())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var names []Name
	for {
		if err := a.Err(); err != nil {
			return nil, err
		}
		list, err := d.ReadDir(1024)
		for _, e := range list {
			names = append(names, Name{e.Name(), e.Type()})
		}
		if len(names) > maxNames {
			return nil, ErrTooMany
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(names, func(a, b Name) int { return strings.Compare(a.Name, b.Name) })
	return names, nil
}

// SkipDir, returned by the function given to Walk, leaves a directory out.
var SkipDir = fs.SkipDir

// Walk calls visit for everything below the directory, in lexical order, each directory
// before its entries. It follows no links, and omits directories that it may not enter
// and entries that vanish meanwhile.
func (a *Actor) Walk(dir string, visit func(path string, typ fs.FileMode) error) error {
	names, err := a.Names(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := a.Err(); err != nil {
			return err
		}
		if err := a.fresh(); err != nil {
			return err
		}
		path := filepath.Join(dir, n.Name)
		switch err := visit(path, n.Type); {
		case errors.Is(err, SkipDir):
			continue
		case err != nil:
			return err
		}
		if !n.Type.IsDir() {
			continue
		}
		if err := unlessGone(a.Walk(path, visit)); err != nil {
			return err
		}
	}
	return nil
}
