package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Append adds data to the end of the regular file, which it creates with mode
// 0666 less the umask. The directory has to be there. Concurrent appends do
// not mix.
func (f FS) Append(path string, data []byte) error {
	abs, err := f.Resolve(path)
	if err != nil {
		return err
	}
	if err := checkNew(abs); err != nil {
		return err
	}
	return f.do(func(a *Actor) error {
		file, err := a.make(abs, os.O_WRONLY|os.O_APPEND)
		created := err == nil
		if errors.Is(err, fs.ErrExist) {
			file, err = a.existing(abs, os.O_WRONLY|os.O_APPEND)
		}
		if err != nil {
			return pathError("append", abs, err)
		}
		if created {
			err = a.give(file, created)
		}
		if err == nil {
			_, err = file.Write(data)
		}
		return pathError("append", abs, errors.Join(err, file.Close()))
	})
}

// Copy copies a file, or a directory with its content. Existing files are replaced;
// symbolic links are copied as links. The directory of the destination must exist. When
// ctx ends, files that were already copied stay.
func (f FS) Copy(ctx context.Context, source, destination string) error {
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
	return f.Do(ctx, func(a *Actor) error {
		info, err := a.stat(from, true)
		if err != nil {
			return pathError("copy", from, err)
		}
		if _, err := a.stat(filepath.Dir(to), true); err != nil {
			return pathError("copy", to, err)
		}
		if !info.IsDir() {
			return a.copyFile(from, to)
		}
		real, err := a.Real(from)
		if err != nil {
			return pathError("copy", from, err)
		}
		if inside, err := filepath.Rel(real, to); err == nil && filepath.IsLocal(inside) {
			return &InvalidError{Field: "destination", Reason: "is inside the source"}
		}
		return pathError("copy", from, a.copyTree(real, to))
	})
}

func (a *Actor) copyTree(from, to string) error {
	if err := a.ensureDir(to); err != nil {
		return err
	}
	names, err := a.Names(from)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := a.Err(); err != nil {
			return err
		}
		if err := a.copyEntry(filepath.Join(from, n.Name), filepath.Join(to, n.Name), n.Type); err != nil {
			return err
		}
	}
	return nil
}

func (a *Actor) copyEntry(from, to string, typ fs.FileMode) error {
	if err := a.fresh(); err != nil {
		return err
	}
	switch {
	case typ.IsDir():
		return a.copyTree(from, to)
	case typ&fs.ModeSymlink != 0:
		return a.copyLink(from, to)
	case typ.IsRegular():
		return a.copyFile(from, to)
	}
	return &PathError{Op: "copy", Path: from, Kind: ErrNotRegular}
}

func (a *Actor) copyLink(from, to string) error {
	source, sourceName, err := a.parent(from)
	if err != nil {
		return err
	}
	defer source.close()
	target, err := os.Readlink(source.at(sourceName))
	if err != nil {
		return err
	}
	dir, name, err := a.parent(to)
	if err != nil {
		return err
	}
	defer dir.close()
	return os.Symlink(target, dir.at(name))
}

func (a *Actor) copyFile(from, to string) error {
	in, info, err := a.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if there, err := a.stat(to, true); err == nil && os.SameFile(there, info) {
		return &InvalidError{Field: "destination", Reason: "is the source"}
	}
	w := &writer{path: to}
	err = w.begin(a, nil)
	if err == nil {
		err = a.transfer(w.file, in)
	}
	if err == nil {
		err = w.file.Chmod(info.Mode().Perm())
	}
	return pathError("copy", to, w.end(a, err, nil))
}

// transferBytes is how much is copied before the context is asked.
const transferBytes = 64 << 20

// transfer copies the rest of a file; the kernel does it by itself where both
// are files.
func (a *Actor) transfer(out io.Writer, in io.Reader) error {
	for {
		if err := a.Err(); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, transferBytes); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// Chmod changes the permission bits of the file at the path, through a descriptor, so
// that exactly the file that change saw is changed.
func (f FS) Chmod(path string, change func(fs.FileMode) fs.FileMode) error {
	abs, err := f.Resolve(path)
	if err != nil {
		return err
	}
	return f.do(func(a *Actor) error { return a.Chmod(abs, change) })
}

// Chmod is [FS.Chmod].
func (a *Actor) Chmod(path string, change func(fs.FileMode) fs.FileMode) error {
	h, err := a.follow(path)
	if err != nil {
		return pathError("chmod", path, err)
	}
	defer h.close()
	info, err := h.info()
	if err == nil {
		err = h.mayChange()
	}
	if err == nil {
		// A handle needs no permission to open the file, so this works on
		// files that may not be opened, too.
		err = os.Chmod(h.self(), change(info.Mode().Perm()).Perm())
	}
	return pathError("chmod", path, err)
}
