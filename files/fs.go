package files

import (
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
}

// Mkdir makes the directory and its missing parents with mode 0755 and gives
// all that it made to the user. A directory that is there is [ErrExists],
// anything else that is there [ErrNotDir].
func (f FS) Mkdir(path string) (Entry, error) {
	dir, err := f.Resolve(path)
	if err != nil {
		return Entry{}, err
	}
	switch info, err := os.Stat(dir); {
	case err == nil && info.IsDir():
		return Entry{}, &PathError{Op: "mkdir", Path: dir, Kind: ErrExists}
	case err == nil:
		return Entry{}, &PathError{Op: "mkdir", Path: dir, Kind: ErrNotDir}
	case !errors.Is(err, os.ErrNotExist):
		return Entry{}, pathError("mkdir", dir, err)
	}
	if err := f.ensureDir(dir); err != nil {
		return Entry{}, err
	}
	return f.Stat(dir)
}

// Move renames source to destination and makes the missing parents of the
// destination, which replaces a file that is there. It does not copy between
// file systems ([ErrCrossDevice]).
func (f FS) Move(source, destination string) (Entry, error) {
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
	// First the source: no directories are left behind for a mistyped name.
	if _, err := os.Lstat(from); err != nil {
		return Entry{}, pathError("move", from, err)
	}
	if err := f.ensureDir(filepath.Dir(to)); err != nil {
		return Entry{}, err
	}
	if err := os.Rename(from, to); err != nil {
		var le *os.LinkError
		if errors.As(err, &le) {
			err = le.Err
		}
		// The only path that can be wrong in both ways is the source moved
		// into itself; the kernel says EINVAL.
		if errors.Is(err, syscall.EINVAL) {
			return Entry{}, &InvalidError{Field: "destination", Reason: "is inside the source"}
		}
		return Entry{}, pathError("move", from, err)
	}
	return f.Stat(to)
}

// Remove removes the file, or the directory with all that is in it. A path
// that is missing is no error. The root directory is not removed.
func (f FS) Remove(path string) error {
	target, err := f.Resolve(path)
	if err != nil {
		return err
	}
	if target == "/" {
		return &InvalidError{Field: "path", Reason: "is the root directory, which is not removed"}
	}
	// A file in the place of a directory: the path is missing all the same.
	if err := os.RemoveAll(target); err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return pathError("remove", target, err)
	}
	return nil
}

// ensureDir makes the directory and its missing parents and gives what it
// made to the user. dir is absolute and clean.
func (f FS) ensureDir(dir string) error {
	if err := checkNew(dir); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &PathError{Op: "mkdir", Path: dir, Kind: ErrNotDir}
	case !errors.Is(err, os.ErrNotExist):
		return pathError("mkdir", dir, err)
	}
	if err := f.ensureDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		// Another request may have made it meanwhile.
		if info, statErr := os.Stat(dir); statErr == nil && info.IsDir() {
			return nil
		}
		return pathError("mkdir", dir, err)
	}
	return f.giveDir(dir)
}

// giveDir hands the directory to the user through a descriptor that follows
// no link: a process that swaps the directory for one gains nothing.
func (f FS) giveDir(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|openDirectory, 0)
	if err != nil {
		return pathError("mkdir", dir, err)
	}
	defer d.Close()
	return pathError("mkdir", dir, f.give(d))
}

// give makes the user the owner of the open file. A daemon that is not root
// acts for its own user only, so there is nothing to give.
func (f FS) give(file *os.File) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if uid, gid := idsOf(info); int(uid) == f.User.UID && int(gid) == f.User.GID {
		return nil
	}
	return file.Chown(f.User.UID, f.User.GID)
}
