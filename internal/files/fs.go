package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// FS does file operations for one user. It holds no state: copy it freely.
// All methods take paths as [FS.Resolve] does and may be called concurrently.
type FS struct {
	User User
	// Workdir is what the empty path means; empty: the user's home.
	Workdir string
	// Root is where paths start, and User is one of its users; nil: this machine.
	Root *Root
	// AsRoot, with a Root: everything is done with the capabilities of root inside, and the
	// files and directories that appear are the User's. Without a Root it has no effect.
	AsRoot bool
	// Within, absolute, clean and without links: what a path leads to must be this directory or
	// below it, or the error is [ErrOutside]. Empty: no such bound. Watch does not know it.
	Within string
}

// do is Do for short operations: it does not end with its caller's context.
func (f FS) do(do func(a *Actor) error) error { return f.Do(context.Background(), do) }

// Mkdir makes the directory and its missing parents with mode 0755. A
// directory that is there is [ErrExists], anything else that is there
// [ErrNotDir].
func (f FS) Mkdir(path string) (entry Entry, err error) {
	dir, err := f.Resolve(path)
	if err != nil {
		return Entry{}, err
	}
	err = f.do(func(a *Actor) error {
		switch info, err := a.stat(dir, true); {
		case err == nil && info.IsDir():
			return &PathError{Op: "mkdir", Path: dir, Kind: ErrExists}
		case err == nil:
			return &PathError{Op: "mkdir", Path: dir, Kind: ErrNotDir}
		}
		if err := a.ensureDir(dir); err != nil {
			return err
		}
		entry, err = a.entry(dir, a.owners())
		return err
	})
	return entry, err
}

// Move renames source to destination and makes the missing parents of the
// destination, which replaces a file that is there. It does not copy between
// file systems ([ErrCrossDevice]).
func (f FS) Move(source, destination string) (entry Entry, err error) {
	from, err := f.Resolve(source)
	if err != nil {
		return Entry{}, err
	}
	to, err := f.Resolve(destination)
	if err != nil {
		return Entry{}, err
	}
	if err := checkNew(to); err != nil {
		return Entry{}, err
	}
	err = f.do(func(a *Actor) error {
		// First the source: no directories are left behind for a mistyped name.
		if _, err := a.stat(from, false); err != nil {
			return pathError("move", from, err)
		}
		if err := a.ensureDir(filepath.Dir(to)); err != nil {
			return err
		}
		if err := a.rename(from, to); err != nil {
			return err
		}
		entry, err = a.entry(to, a.owners())
		return err
	})
	return entry, err
}

func (a *Actor) rename(from, to string) error {
	source, sourceName, err := a.parent(from)
	if err != nil {
		return pathError("move", from, err)
	}
	defer source.close()
	target, targetName, err := a.parent(to)
	if err != nil {
		return pathError("move", to, err)
	}
	defer target.close()
	err = os.Rename(source.at(sourceName), target.at(targetName))
	// The only path that can be wrong in both ways is the source moved into
	// itself; the kernel says EINVAL.
	if errors.Is(err, syscall.EINVAL) {
		return &InvalidError{Field: "destination", Reason: "is inside the source"}
	}
	return pathError("move", from, err)
}

// Remove removes the file, or the directory with its content. If the path does not
// exist, it does nothing. The root directory is not removed.
func (f FS) Remove(path string) error {
	target, err := f.Resolve(path)
	if err != nil {
		return err
	}
	return f.do(func(a *Actor) error { return a.Remove(target) })
}

// Remove is [FS.Remove]. With a [Root] it ends with the context.
func (a *Actor) Remove(path string) error {
	err := a.remove(path, func(dir *handle, name string) error {
		if a.root != nil {
			return a.removeTree(dir, name)
		}
		return os.RemoveAll(dir.at(name))
	})
	// A file in the place of a directory: the path is missing all the same.
	if errors.Is(err, ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// RemoveOne removes the file or the empty directory.
func (f FS) RemoveOne(path string) error {
	target, err := f.Resolve(path)
	if err != nil {
		return err
	}
	return f.do(func(a *Actor) error {
		return a.remove(target, func(dir *handle, name string) error { return os.Remove(dir.at(name)) })
	})
}

func (a *Actor) remove(path string, remove func(dir *handle, name string) error) error {
	if path == "/" {
		return &InvalidError{Field: "path", Reason: "is the root directory, which is not removed"}
	}
	dir, name, err := a.parent(path)
	if err == nil {
		defer dir.close()
		err = remove(dir, name)
	}
	return pathError("remove", path, err)
}

// ensureDir makes the directory and its missing parents. dir is absolute and
// clean.
func (a *Actor) ensureDir(dir string) error {
	if err := checkNew(dir); err != nil {
		return err
	}
	info, err := a.stat(dir, true)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &PathError{Op: "mkdir", Path: dir, Kind: ErrNotDir}
	case errors.Is(err, syscall.ENOTDIR):
		// A parent is a file, which is the path to name.
	case !errors.Is(err, os.ErrNotExist):
		return pathError("mkdir", dir, err)
	}
	if err := a.ensureDir(filepath.Dir(dir)); err != nil {
		return err
	}
	parent, name, err := a.parent(dir)
	if err != nil {
		return pathError("mkdir", dir, err)
	}
	defer parent.close()
	if err := os.Mkdir(parent.at(name), 0o755); err != nil {
		// Another request may have made it meanwhile.
		if info, statErr := a.stat(dir, true); statErr == nil && info.IsDir() {
			return nil
		}
		return pathError("mkdir", dir, err)
	}
	if a.asRoot {
		return pathError("mkdir", dir, a.ownGroup(parent, name))
	}
	return nil
}
