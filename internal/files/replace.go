package files

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// What a file must be for [FS.Replace], besides one version.
const (
	AnyVersion  = "*" // every version, and none
	SomeVersion = "+" // every version, and there must be a file
)

// Version identifies the state of a file: it changes when the file is written,
// replaced, or gets other rights. It has only letters, digits and '-'.
func Version(info fs.FileInfo) string {
	inode, changed := identity(info)
	return fmt.Sprintf("%x-%x-%x-%x", inode, info.Size(), info.ModTime().UnixNano(), changed)
}

// Replace replaces the file by the content of r, atomically: the content is written to
// a file beside it, without a name if the file system supports that, which gets the
// name at the end. A writer that breaks off changes nothing. Missing parents are
// created. A link is followed; a dangling link is replaced. The mode is kept, and also
// the owner if the user may give files away; otherwise the file belongs to the user.
// Other hard links of the file keep the old content.
//
// was is the version that the file must have, at the beginning and at the end; "":
// there must be no file; [SomeVersion]: there must be one; [AnyVersion]: no condition.
// Otherwise it fails with [ErrChanged], or [ErrExists]. It returns the version that the
// file has then.
func (f FS) Replace(ctx context.Context, path string, r io.Reader, was string) (entry Entry, version string, err error) {
	return f.replace(ctx, path, r, &replacement{was: was})
}

// Install is Replace with a mode that the file gets whatever it had before, as whoever may change its directory
// can; then it is the user's. When it returns the file and its name are on the disk.
func (f FS) Install(ctx context.Context, path string, r io.Reader, was string, mode fs.FileMode) (entry Entry, version string, err error) {
	return f.replace(ctx, path, r, &replacement{was: was, mode: &mode})
}

func (f FS) replace(ctx context.Context, path string, r io.Reader, w *replacement) (entry Entry, version string, err error) {
	abs, err := f.Resolve(path)
	if err != nil {
		return Entry{}, "", err
	}
	if err := checkNew(abs); err != nil {
		return Entry{}, "", err
	}
	w.path = abs
	// A wrong version is told before all of the content comes.
	if err := f.Do(ctx, w.inspect); err != nil {
		return Entry{}, "", pathError("write", abs, err)
	}
	var head bytes.Buffer
	_, err = io.CopyN(&head, r, headBytes)
	whole := errors.Is(err, io.EOF)
	if err != nil && !whole {
		return Entry{}, "", pathError("write", abs, &bodyError{err})
	}
	defer f.Root.use()() // also between the pieces
	if err := f.Do(ctx, w.begin); err != nil {
		return Entry{}, "", pathError("write", abs, err)
	}
	to := &writer{fs: f, path: abs, file: w.file}
	_, err = to.Write(head.Bytes())
	if err == nil && !whole {
		_, err = io.CopyBuffer(to, bodyReader{r}, head.Bytes()[:headBytes])
	}
	endErr := f.do(func(a *Actor) error {
		if err == nil {
			err = w.end(a)
		}
		err = errors.Join(err, w.close())
		if err == nil {
			entry, err = a.entry(abs, a.owners())
		}
		return err
	})
	return entry, w.now, pathError("write", abs, endErr)
}

// replacement is a file that is to take the place of another.
type replacement struct {
	path string // without links, once look has found a file there
	was  string
	old  fs.FileInfo // nil: there is no file
	file *os.File
	dir  *handle
	part string // the name beside the file; "": it has none
	// named: it has such a name from the beginning, else only if there is no other way.
	named bool
	mode  *fs.FileMode // of Install
	now   string       // its version at the end
}

// inspect finds what is to be replaced, and whether it may be.
func (w *replacement) inspect(a *Actor) error {
	info, err := a.stat(w.path, true)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if w.was != "" && w.was != AnyVersion {
			return &PathError{Op: "write", Path: w.path, Kind: ErrChanged}
		}
		w.old = nil
		return nil
	case err != nil:
		return err
	}
	if err := checkRegular("write", w.path, info); err != nil {
		return err
	}
	if w.was == "" {
		return &PathError{Op: "write", Path: w.path, Kind: ErrExists}
	}
	if w.was != AnyVersion && w.was != SomeVersion && w.was != Version(info) {
		return &PathError{Op: "write", Path: w.path, Kind: ErrChanged}
	}
	w.old = info
	if w.mode == nil { // the directory's rights are enough to replace a file, and not to write it
		file, err := a.existing(w.path, os.O_WRONLY)
		if err != nil {
			return err
		}
		defer file.Close()
	}
	w.path, err = a.Real(w.path)
	return err
}

// begin makes the file beside the one that is there.
func (w *replacement) begin(a *Actor) error {
	if err := a.ensureDir(filepath.Dir(w.path)); err != nil {
		return err
	}
	dir, _, err := a.parent(w.path)
	if err != nil {
		return err
	}
	w.dir = dir
	if !w.named {
		w.file, err = nameless(dir)
	}
	if w.named || err != nil {
		w.part = ".tend-" + rand.Text() + ".part"
		if w.file, err = os.OpenFile(dir.at(w.part), os.O_WRONLY|os.O_CREATE|os.O_EXCL|openFlags, 0o666); err != nil {
			w.part = ""
			dir.close()
			return err
		}
	}
	if err := a.give(w.file, true); err != nil {
		return errors.Join(err, w.close())
	}
	return nil
}

// end gives the file its name, if what has it is still what was seen.
func (w *replacement) end(a *Actor) error {
	switch {
	case w.mode != nil:
		if err := errors.Join(w.file.Chmod(*w.mode), w.file.Sync()); err != nil {
			return err
		}
	case w.old != nil:
		if err := w.resemble(a); err != nil {
			return err
		}
	}
	name := filepath.Base(w.path) // in dir; what has become a link meanwhile leads elsewhere
	if err := w.inspect(a); err != nil {
		return err
	}
	switch {
	case w.old == nil:
		// What has appeared meanwhile stays.
		if err := w.link(name); errors.Is(err, fs.ErrExist) && w.was == AnyVersion {
			if err := w.over(name); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
	default:
		if err := w.over(name); err != nil {
			return err
		}
	}
	info, err := w.file.Stat()
	if err == nil {
		w.now = Version(info)
	}
	if err == nil && w.mode != nil {
		err = w.dir.sync()
	}
	return err
}

// sync forces the names of a directory to the disk, if the user may read it.
func (h *handle) sync() error {
	dir, err := os.Open(h.self())
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	return err
}

// over renames it over what is there.
func (w *replacement) over(name string) error {
	if w.part == "" {
		part := ".tend-" + rand.Text() + ".part"
		if err := w.link(part); err != nil {
			return err
		}
		w.part = part
	}
	if err := os.Rename(w.dir.at(w.part), w.dir.at(name)); err != nil {
		return err
	}
	w.part = ""
	return nil
}

// link gives it another name, which must be free.
func (w *replacement) link(name string) error {
	if w.part == "" {
		return linkNameless(w.file, w.dir, name)
	}
	return os.Link(w.dir.at(w.part), w.dir.at(name))
}

// resemble gives it the mode of the old one, and its owner and group if that is permitted.
// Another group gets no rights by that mode.
func (w *replacement) resemble(a *Actor) error {
	mode := w.old.Mode().Perm()
	if !a.giveTo(w.file, w.old) {
		mode &^= 0o070
	}
	return w.file.Chmod(mode)
}

// giveTo reports whether the open file belongs to whom the other one does, which info
// describes.
func (a *Actor) giveTo(file *os.File, info fs.FileInfo) bool {
	uid, gid := idsOf(info)
	if a.root != nil {
		if uid == nobody || gid == nobody {
			return false // it may stand for somebody who is not inside
		}
		uid, gid = a.root.outer(uid), a.root.outer(gid)
		if a.root.own {
			gid = uint32(os.Getegid())
		}
	}
	_ = file.Chown(int(uid), int(gid)) // what comes of it is asked
	now, err := file.Stat()
	if err != nil {
		return false
	}
	nowUID, nowGID := idsOf(now)
	return nowUID == uid && nowGID == gid
}

// close lets go of it, and removes the name beside the file.
func (w *replacement) close() error {
	if w.file == nil {
		return nil
	}
	var err error
	if w.part != "" {
		err = os.Remove(w.dir.at(w.part))
	}
	w.dir.close()
	return errors.Join(err, w.file.Close())
}
