// Package volume does file operations in a volume: a directory that programs in several
// sandboxes write to while the daemon does. Nothing that they make leads the daemon out of
// it: os.Root opens each part of a path by itself, and follows links only as long as they
// stay inside. Nothing makes it wait: only regular files and directories are opened, and
// without blocking.
//
// # Owners
//
// The ids on the disk are those that programs see inside (sandbox.Bind), so root's files are
// root's in each sandbox. The directory is below one that nobody but the daemon may enter,
// so no user of this machine meets a file that a sandbox has made there. A daemon that is
// not root has one id, which is root's inside ([Open]).
package volume

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Modes of what is made, where a request has none: as E2B has them, so that programs of each
// user may write to it.
const (
	fileMode = 0o666
	DirMode  = 0o777
)

const (
	maxID  = 1<<16 - 1
	nobody = 65534
)

// Files implements driver.VolumeFiles. All methods may be called concurrently.
type Files struct {
	root *os.Root
	own  bool
}

var _ driver.VolumeFiles = (*Files)(nil)

// Open opens a directory. own: the one id is the daemon's.
func Open(dir string, own bool) (*Files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Files{root, own}, nil
}

// Close implements driver.VolumeFiles.
func (f *Files) Close() error { return f.root.Close() }

// within is the path for an os.Root: "." is the volume.
func within(p string) (string, error) {
	if len(p) > driver.MaxPath || strings.IndexByte(p, 0) >= 0 {
		return "", &driver.InvalidError{Field: "path",
			Reason: fmt.Sprintf("has %d bytes or a NUL byte; at most %d are allowed", len(p), driver.MaxPath)}
	}
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+p), "/"), "."), nil
}

// shown is what callers call a path.
func shown(name string) string { return path.Join("/", name) }

// fault is a *files.PathError about the path, or what is no error of a file.
func fault(op, name string, err error) error {
	invalid := func(reason string) error { return &driver.InvalidError{Field: "path", Reason: reason} }
	known := error(nil)
	no, system := errors.AsType[syscall.Errno](err)
	_, ours := errors.AsType[*fs.PathError](err)
	_, linked := errors.AsType[*os.LinkError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		known = files.ErrNotExist
	case no == syscall.ENOTDIR:
		known = files.ErrNotDir
	case errors.Is(err, fs.ErrExist):
		known = files.ErrExists
	case no == syscall.EISDIR:
		known = files.ErrIsDir
	case no == syscall.ENOSPC, no == syscall.EDQUOT:
		known = files.ErrNoSpace
	case no == syscall.ENXIO, no == syscall.ENODEV:
		known = files.ErrNotRegular
	case no == syscall.ELOOP:
		return invalid("leads through too many links")
	case no == syscall.ENAMETOOLONG:
		return invalid("has a name of more than 255 bytes, or is too long")
	case errors.Is(err, fs.ErrPermission), !system && (ours || linked): // os.Root says so of what leads out
		known = files.ErrPermission
	default:
		return err
	}
	return &files.PathError{Op: op, Path: shown(name), Kind: known}
}

// check refuses numbers that the files cannot have.
func (f *Files) check(a *driver.VolumeAttr) error {
	for _, id := range []struct {
		field string
		value *uint32
	}{{"uid", a.UID}, {"gid", a.GID}} {
		switch {
		case id.value == nil:
		case *id.value > maxID:
			return &driver.InvalidError{Field: id.field, Reason: fmt.Sprintf("is %d; 0 to %d are allowed", *id.value, maxID)}
		case f.own && *id.value != 0:
			return &driver.InvalidError{Field: id.field,
				Reason: fmt.Sprintf("is %d; tend does not run as root here, so all files belong to 0: leave it out", *id.value)}
		}
	}
	if a.Mode != nil && *a.Mode > 0o777 {
		return &driver.InvalidError{Field: "mode", Reason: fmt.Sprintf("is %#o; 0 to 0777 are allowed", *a.Mode)}
	}
	return nil
}

// give sets owner and mode of what was just made.
func (f *Files) give(made *os.File, a *driver.VolumeAttr, mode uint32) error {
	if !f.own {
		if err := made.Chown(int(or(a.UID, 0)), int(or(a.GID, 0))); err != nil {
			return err
		}
	}
	return made.Chmod(fs.FileMode(or(a.Mode, mode)))
}

func or(p *uint32, otherwise uint32) uint32 {
	if p == nil {
		return otherwise
	}
	return *p
}

// Stat implements driver.VolumeFiles.
func (f *Files) Stat(p string) (driver.VolumeEntry, error) {
	name, err := within(p)
	if err != nil {
		return driver.VolumeEntry{}, err
	}
	return f.entry(name)
}

func (f *Files) entry(name string) (driver.VolumeEntry, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return driver.VolumeEntry{}, fault("stat", name, err)
	}
	e := driver.VolumeEntry{Name: path.Base(shown(name)), Path: shown(name), Info: info}
	e.UID, e.GID, e.Accessed, e.Changed = more(info)
	if f.own {
		e.UID, e.GID = ownID(e.UID, os.Geteuid()), ownID(e.GID, os.Getegid())
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		e.Target, _ = f.root.Readlink(name) // it may be another file by now
	}
	return e, nil
}

func ownID(id uint32, ours int) uint32 {
	if int(id) == ours {
		return 0
	}
	return nobody
}

// Open implements driver.VolumeFiles.
func (f *Files) Open(p string) (io.ReadSeekCloser, fs.FileInfo, error) {
	name, err := within(p)
	if err != nil {
		return nil, nil, err
	}
	file, err := f.root.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, nil, fault("open", name, err)
	}
	info, err := file.Stat()
	switch {
	case err == nil && info.Mode().IsRegular():
		return file, info, nil
	case err == nil && info.IsDir():
		err = &files.PathError{Op: "open", Path: shown(name), Kind: files.ErrIsDir}
	case err == nil:
		err = &files.PathError{Op: "open", Path: shown(name), Kind: files.ErrNotRegular}
	}
	file.Close()
	return nil, nil, err
}

// List implements driver.VolumeFiles.
func (f *Files) List(ctx context.Context, p string, depth int) ([]driver.VolumeEntry, error) {
	if depth < 1 || depth > driver.MaxVolumeDepth {
		return nil, &driver.InvalidError{Field: "depth", Reason: fmt.Sprintf("is %d; 1 to %d are allowed", depth, driver.MaxVolumeDepth)}
	}
	name, err := within(p)
	if err != nil {
		return nil, err
	}
	return f.list(ctx, nil, name, depth)
}

func (f *Files) list(ctx context.Context, all []driver.VolumeEntry, dir string, depth int) ([]driver.VolumeEntry, error) {
	names, err := f.names(ctx, dir, driver.MaxVolumeEntries-len(all))
	if err != nil {
		return all, err
	}
	for _, name := range names {
		e, err := f.entry(path.Join(dir, name))
		if errors.Is(err, files.ErrNotExist) {
			continue // meanwhile
		}
		if err != nil {
			return all, err
		}
		all = append(all, e)
		if !e.Info.IsDir() || depth == 1 {
			continue
		}
		all, err = f.list(ctx, all, path.Join(dir, name), depth-1)
		if err != nil && !errors.Is(err, files.ErrNotExist) && !errors.Is(err, files.ErrNotDir) {
			return all, err
		}
	}
	return all, nil
}

// names are those in a directory, in order.
func (f *Files) names(ctx context.Context, dir string, most int) ([]string, error) {
	d, err := f.root.OpenFile(dir, os.O_RDONLY|noWait|onlyDir, 0)
	if err != nil {
		return nil, fault("list", dir, err)
	}
	defer d.Close()
	var all []string
	for {
		some, err := d.Readdirnames(1000)
		if err == nil {
			err = ctx.Err()
		}
		if all = append(all, some...); len(all) > most {
			return nil, &driver.InvalidError{Field: "path", Reason: fmt.Sprintf("has more than %d entries below it; list with a smaller depth, "+
				"or from a sandbox that has the volume", driver.MaxVolumeEntries)}
		}
		if err == io.EOF {
			slices.Sort(all)
			return all, nil
		}
		if err != nil {
			return nil, fault("list", dir, err)
		}
	}
}

// Write implements driver.VolumeFiles. The file is written beside its place, by a name that
// nobody guesses.
func (f *Files) Write(p string, r io.Reader, a driver.VolumeAttr, force bool) (_ driver.VolumeEntry, err error) {
	name, err := within(p)
	if err == nil {
		err = f.check(&a)
	}
	if err != nil {
		return driver.VolumeEntry{}, err
	}
	dir := path.Dir(name)
	if force {
		if err := f.mkdirs(dir, &a); err != nil {
			return driver.VolumeEntry{}, err
		}
	}
	switch info, err := f.root.Lstat(name); {
	case err == nil && info.IsDir():
		return driver.VolumeEntry{}, &files.PathError{Op: "write", Path: shown(name), Kind: files.ErrIsDir}
	case err == nil && !force:
		return driver.VolumeEntry{}, &files.PathError{Op: "write", Path: shown(name), Kind: files.ErrExists}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return driver.VolumeEntry{}, fault("write", name, err)
	}
	temp := path.Join(dir, ".upload-"+rand.Text())
	file, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return driver.VolumeEntry{}, fault("write", name, err)
	}
	defer func() {
		file.Close()
		if err != nil || !force {
			_ = f.root.Remove(temp)
		}
	}()
	if _, err = io.Copy(file, r); err == nil {
		err = f.give(file, &a, fileMode)
	}
	switch {
	case err != nil:
	case force:
		err = f.root.Rename(temp, name)
	default: // of two that write it at a time, one fails
		err = f.root.Link(temp, name)
	}
	if err != nil {
		return driver.VolumeEntry{}, fault("write", name, err)
	}
	return f.entry(name)
}

// Mkdir implements driver.VolumeFiles.
func (f *Files) Mkdir(p string, a driver.VolumeAttr, force bool) (driver.VolumeEntry, error) {
	name, err := within(p)
	if err == nil {
		err = f.check(&a)
	}
	if err == nil && force {
		err = f.mkdirs(path.Dir(name), &a)
	}
	if err != nil {
		return driver.VolumeEntry{}, err
	}
	err = f.mkdir(name, &a)
	if errors.Is(err, files.ErrExists) && force {
		if info, serr := f.root.Stat(name); serr == nil && info.IsDir() {
			err = nil
		}
	}
	if err != nil {
		return driver.VolumeEntry{}, err
	}
	return f.entry(name)
}

// mkdirs makes the missing directories of a path, with the owner.
func (f *Files) mkdirs(dir string, a *driver.VolumeAttr) error {
	info, err := f.root.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &files.PathError{Op: "mkdir", Path: shown(dir), Kind: files.ErrNotDir}
	case !errors.Is(err, fs.ErrNotExist):
		return fault("mkdir", dir, err)
	}
	if err := f.mkdirs(path.Dir(dir), a); err != nil {
		return err
	}
	err = f.mkdir(dir, &driver.VolumeAttr{UID: a.UID, GID: a.GID})
	if errors.Is(err, files.ErrExists) { // somebody has made it meanwhile
		return nil
	}
	return err
}

// mkdir makes a directory. It is nobody's until it has its owner: another one that a program
// puts into its place meanwhile has other bits, and stays as it is.
func (f *Files) mkdir(name string, a *driver.VolumeAttr) error {
	if err := f.root.Mkdir(name, madeMode); err != nil {
		return fault("mkdir", name, err)
	}
	made, err := f.root.OpenFile(name, os.O_RDONLY|noWait|onlyDir, 0)
	if err != nil {
		return fault("mkdir", name, err)
	}
	defer made.Close()
	info, err := made.Stat()
	if err == nil && info.Mode().Perm() != madeMode {
		err = &files.PathError{Op: "mkdir", Path: shown(name), Kind: files.ErrExists}
	}
	if err == nil {
		err = f.give(made, a, DirMode)
	}
	return fault("mkdir", name, err)
}

// madeMode is that of a directory between its making and its owner, which nobody else gives one.
const madeMode = 0o400

// Change implements driver.VolumeFiles.
func (f *Files) Change(p string, a driver.VolumeAttr) (driver.VolumeEntry, error) {
	name, err := within(p)
	if err == nil {
		err = f.check(&a)
	}
	if err != nil {
		return driver.VolumeEntry{}, err
	}
	if _, err := f.root.Stat(name); err != nil {
		return driver.VolumeEntry{}, fault("change", name, err)
	}
	if !f.own && (a.UID != nil || a.GID != nil) {
		uid, gid := -1, -1
		if a.UID != nil {
			uid = int(*a.UID)
		}
		if a.GID != nil {
			gid = int(*a.GID)
		}
		err = f.root.Chown(name, uid, gid)
	}
	if err == nil && a.Mode != nil {
		err = f.root.Chmod(name, fs.FileMode(*a.Mode))
	}
	if err != nil {
		return driver.VolumeEntry{}, fault("change", name, err)
	}
	return f.entry(name)
}

// Remove implements driver.VolumeFiles.
func (f *Files) Remove(p string) error {
	name, err := within(p)
	if err != nil {
		return err
	}
	if name == "." {
		return &driver.InvalidError{Field: "path", Reason: "is the volume itself; delete that instead"}
	}
	if _, err := f.root.Lstat(name); err != nil {
		return fault("remove", name, err)
	}
	return fault("remove", name, f.root.RemoveAll(name))
}
