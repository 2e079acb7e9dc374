package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Append adds data to the end of the regular file, which it creates with mode
// 0666 less the umask and gives to the user. The directory has to be there.
// Concurrent appends do not mix.
func (f FS) Append(path string, data []byte) error {
	abs, err := f.Resolve(path)
	if err != nil {
		return err
	}
	if err := checkNew(abs); err != nil {
		return err
	}
	file, err := os.OpenFile(abs, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL|openFlags, 0o666)
	created := err == nil
	if errors.Is(err, fs.ErrExist) {
		file, _, err = openRegular("append", abs, os.O_WRONLY|os.O_APPEND)
	}
	if err != nil {
		return pathError("append", abs, err)
	}
	if created {
		err = f.give(file)
	}
	if err == nil {
		_, err = file.Write(data)
	}
	return pathError("append", abs, errors.Join(err, file.Close()))
}

// Copy copies a file, or a directory with all that is in it, and gives the copy
// to the user. Files that are there are replaced; symbolic links are copied as
// links. The directory of the destination has to be there.
func (f FS) Copy(source, destination string) error {
	from, err := f.Resolve(source)
	if err != nil {
		return err
	}
	to, err := f.Resolve(destination)
	if err != nil {
		return err
	}
	if err := checkNew(to); err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return pathError("copy", from, err)
	}
	if _, err := os.Stat(filepath.Dir(to)); err != nil {
		return pathError("copy", to, err)
	}
	if !info.IsDir() {
		return f.copyFile(from, to)
	}
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return pathError("copy", from, err)
	}
	if inside, err := filepath.Rel(real, to); err == nil && filepath.IsLocal(inside) {
		return &InvalidError{Field: "destination", Reason: "is inside the source"}
	}
	return pathError("copy", from, filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(real, path)
		if err != nil {
			return err
		}
		return f.copyEntry(path, filepath.Join(to, rel), d)
	}))
}

func (f FS) copyEntry(from, to string, d fs.DirEntry) error {
	switch {
	case d.IsDir():
		return f.ensureDir(to)
	case d.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, to); err != nil {
			return err
		}
		return f.giveLink(to)
	case d.Type().IsRegular():
		return f.copyFile(from, to)
	}
	return &PathError{Op: "copy", Path: from, Kind: ErrNotRegular}
}

// giveLink hands a link to the user. Lchown follows nothing: if the name was
// swapped, something of the swapper's own changes its owner.
func (f FS) giveLink(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(path, f.User.UID, f.User.GID)
}

func (f FS) copyFile(from, to string) error {
	file, info, err := openRegular("copy", from, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close()
	if there, err := os.Stat(to); err == nil && os.SameFile(there, info) {
		return &InvalidError{Field: "destination", Reason: "is the source"}
	}
	if _, err := f.Write(to, file, nil); err != nil {
		return err
	}
	return f.Chmod(to, func(fs.FileMode) fs.FileMode { return info.Mode().Perm() })
}

// Chmod changes the permission bits of what the path leads to, through a
// descriptor, so that what change saw is what is changed.
func (f FS) Chmod(path string, change func(fs.FileMode) fs.FileMode) error {
	abs, err := f.Resolve(path)
	if err != nil {
		return err
	}
	return pathError("chmod", abs, chmod(abs, change))
}
