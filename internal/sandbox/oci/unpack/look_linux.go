package unpack

import (
	"archive/tar"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// at finds what a name is. Links among its directories are followed, one at its end is not.
func (v *View) at(name string) (node, string, error) {
	name = trim(name)
	if name == "" {
		return node{}, "", nil
	}
	dir, err := v.t.walk(parent(name))
	if err != nil {
		return node{}, "", err
	}
	n, err := v.t.find(dir, path.Base(name))
	if err == nil && !n.there {
		err = fs.ErrNotExist
	}
	return n, join(dir, path.Base(name)), err
}

// Lstat describes what has a name, as an entry of a layer: without a name of its own, and of
// devices and the like with the type alone. [fs.ErrNotExist].
func (v *View) Lstat(name string) (*tar.Header, error) {
	n, real, err := v.at(name)
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if real == "" {
		if err := v.root(&n); err != nil {
			return nil, err
		}
	}
	h := headerOf(&n.st)
	switch n.st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, n.st.Size
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		h.Linkname, err = v.t.readlink(&n, parent(real), path.Base(real))
	default:
		h.Typeflag = tar.TypeChar
	}
	return h, err
}

// root describes the root, which is that of the topmost layer.
func (v *View) root(n *node) error {
	*n = node{there: true}
	if v.t.n == 0 {
		n.st.Mode = unix.S_IFDIR | 0o755
		return nil
	}
	return eintr.Do(func() error { return unix.Fstat(v.t.tops[0], &n.st) })
}

// List returns the names in a directory, sorted. Links are followed.
func (v *View) List(name string) ([]string, error) {
	real, err := v.t.walk(trim(name))
	if err != nil {
		return nil, err
	}
	layers, err := v.t.stack(real)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var all []string
	for _, i := range layers {
		fd, err := v.t.dir(i, real)
		if err != nil {
			return nil, err
		}
		names, err := namesIn(fd)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if seen[name] {
				continue
			}
			seen[name] = true
			st, err := v.t.stat(i, real, name)
			if err != nil {
				return nil, err
			}
			if !isWhiteout(&st) {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// Open opens a regular file; a link at its end is none. [fs.ErrNotExist] if there is none.
func (v *View) Open(name string) (*os.File, error) {
	n, real, err := v.at(name)
	if err == nil && !n.is(unix.S_IFREG) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	dir, err := v.t.dir(n.layer, parent(real))
	if err != nil {
		return nil, err
	}
	fd, err := eintr.Get(func() (int, error) {
		return unix.Openat(dir, path.Base(real), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), strings.Clone(name)), nil
}
