package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// MaxEntries is the most entries of one listing.
	MaxEntries = 200_000
	// MaxDepth is the deepest listing; larger numbers mean this one. No path
	// that the kernel takes is deeper.
	MaxDepth = 2048
)

// List lists the directory in lexical order, each directory before what is in
// it, down to depth levels (0 means 1). A path that is a symbolic link is
// followed; links inside are not. Paths of entries start with the path as
// asked for. Entries that vanish meanwhile are left out, and what is in
// directories closed to the daemon.
func (f FS) List(ctx context.Context, path string, depth uint32) ([]Entry, error) {
	asked, err := f.Resolve(path)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(asked)
	if err != nil {
		return nil, pathError("list", asked, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, pathError("list", asked, err)
	}
	if !info.IsDir() {
		return nil, &PathError{Op: "list", Path: asked, Kind: ErrNotDir}
	}
	l := &lister{ctx: ctx, names: newOwners()}
	if err := l.walk(dir, asked, int(min(max(depth, 1), MaxDepth))); err != nil {
		return nil, pathError("list", asked, err)
	}
	return l.entries, nil
}

// lister collects the entries of one call of List.
type lister struct {
	ctx     context.Context // of the one call that the lister lives for
	names   *owners
	entries []Entry
}

// walk lists dir, which is shown under the path shown.
func (l *lister) walk(dir, shown string, depth int) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	children, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, child := range children {
		info, err := child.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if len(l.entries) == MaxEntries {
			return &PathError{Op: "list", Path: shown, Kind: ErrTooMany}
		}
		path := filepath.Join(dir, child.Name())
		e := entryOf(path, info, l.names)
		e.Path = entryPath(shown, e.Name)
		l.entries = append(l.entries, e)
		if !child.IsDir() || depth == 1 {
			continue
		}
		err = l.walk(path, filepath.Join(shown, child.Name()), depth-1)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

func entryPath(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}
