package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// openFlags keep an open from hanging or having effects: a FIFO or a device
// that took the place of the file is opened without waiting, and refused.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

const (
	// MaxPseudo limits how much is read of a file that the kernel generates, in bytes.
	MaxPseudo = 16 << 20
	// smallFile is up to which size a file is read at once, in bytes. That is
	// cheaper, and right where another file system than those that are known
	// says nothing of a file's size: 0, or a page.
	smallFile = 4096
)

// Content is the content of a file that was opened for reading: an [*os.File], or bytes
// in memory.
type Content interface {
	io.ReadSeeker
	io.Closer
}

// Open opens the regular file for reading. Directories are [ErrIsDir],
// everything else but regular files [ErrNotRegular].
//
// Files that the kernel makes up, as those of /proc and /sys, are read at once
// and without waiting, so that their size is known; those that have no end
// are [ErrEndless].
func (f FS) Open(path string) (content Content, info fs.FileInfo, err error) {
	abs, err := f.Resolve(path)
	if err != nil {
		return nil, nil, err
	}
	err = f.do(func(a *Actor) error {
		content, info, err = a.Open(abs)
		return err
	})
	return content, info, err
}

// Open is [FS.Open].
func (a *Actor) Open(path string) (Content, fs.FileInfo, error) {
	h, info, err := a.regular("open", path)
	if err != nil {
		return nil, nil, err
	}
	defer h.close()
	atOnce := info.Size() <= smallFile
	if !atOnce {
		if atOnce, err = h.isPseudo(); err != nil {
			return nil, nil, pathError("open", path, err)
		}
	}
	if atOnce {
		data, err := readNow(h.self())
		if err != nil {
			return nil, nil, pathError("open", path, err)
		}
		if int64(len(data)) != info.Size() {
			info = sized{info, int64(len(data))}
		}
		return memory{bytes.NewReader(data)}, info, nil
	}
	file, err := os.OpenFile(h.self(), os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, nil, pathError("open", path, err)
	}
	return file, info, nil
}

// regular opens what the path leads to if it is a regular file.
func (a *Actor) regular(op, path string) (*handle, fs.FileInfo, error) {
	h, err := a.follow(path)
	if err != nil {
		return nil, nil, pathError(op, path, err)
	}
	info, err := h.info()
	if err == nil {
		err = checkRegular(op, path, info)
	}
	if err != nil {
		h.close()
		return nil, nil, pathError(op, path, err)
	}
	return h, info, nil
}

func checkRegular(op, path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return &PathError{Op: op, Path: path, Kind: ErrIsDir}
	case !info.Mode().IsRegular():
		return &PathError{Op: op, Path: path, Kind: ErrNotRegular}
	}
	return nil
}

// memory is the content of a file that was read at once.
type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

// sized says the size that was read.
type sized struct {
	fs.FileInfo
	size int64
}

func (s sized) Size() int64 { return s.size }

// create opens the file for writing and says whether it was made.
func (a *Actor) create(path string) (file *os.File, created bool, err error) {
	// Twice: the file may go between the two opens.
	for range 2 {
		if err := a.fresh(); err != nil {
			return nil, false, err
		}
		file, err = a.make(path, os.O_WRONLY)
		if err == nil {
			return file, true, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, false, err
		}
		if err := a.fresh(); err != nil { // the file may be another's than its directory
			return nil, false, err
		}
		file, err = a.existing(path, os.O_WRONLY)
		if err == nil {
			return file, false, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
	}
	// A link that leads to a file that is not there yet.
	if a.root != nil || a.within != "" {
		file, err = a.makeTarget(path)
	} else {
		file, err = openThrough(path, os.O_WRONLY|os.O_CREATE|openFlags, 0o666)
	}
	if err != nil {
		return nil, false, err
	}
	info, err := file.Stat()
	if err == nil {
		err = checkRegular("write", path, info)
	}
	if err != nil {
		return nil, false, errors.Join(err, file.Close())
	}
	return file, false, nil
}

// makeTarget makes the file that a link leads to. Whoever makes it has to know its
// directory before, to have no more rights there than root inside.
func (a *Actor) makeTarget(path string) (*os.File, error) {
	for range 40 { // as the kernel does
		if err := a.fresh(); err != nil {
			return nil, err
		}
		h, err := a.nofollow(path)
		if err != nil {
			return nil, err
		}
		text, err := h.link()
		h.close()
		if err != nil {
			return nil, err
		}
		dir, _ := split(path)
		if dir, err = a.Real(dir); err != nil {
			return nil, err
		}
		path = pathOfLink(dir, text)
		file, err := a.make(path, os.O_WRONLY)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
	}
	return nil, syscall.ELOOP
}

// make makes the file, which must not be there.
func (a *Actor) make(path string, flags int) (*os.File, error) {
	dir, name, err := a.parent(path)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	return os.OpenFile(dir.at(name), flags|os.O_CREATE|os.O_EXCL|openFlags, 0o666)
}

// existing opens a regular file that is there.
func (a *Actor) existing(path string, flags int) (*os.File, error) {
	h, _, err := a.regular("write", path)
	if err != nil {
		return nil, err
	}
	defer h.close()
	if err := h.mayChange(); err != nil {
		return nil, err
	}
	return os.OpenFile(h.self(), flags|openFlags, 0)
}

// give makes the user the owner of the open file. Only the daemon's own user, and
// root inside, have to be given anything: what others make is theirs, and what is
// not theirs they are not given. A file that was made gets it anyway, for the sake of the
// CHMOD that watchers of envd are told between CREATE and WRITE. What root inside may not
// give away for the user stays its owner's.
func (a *Actor) give(file *os.File, created bool) error {
	own := a.daemon == nil && os.Geteuid() == 0 || a.powers
	if !own && !created {
		return nil
	}
	if err := a.settle(file); err != nil {
		return err
	}
	err := file.Chown(a.outside.UID, a.outside.GID)
	if err == nil || a.asRoot && errors.Is(err, fs.ErrPermission) {
		return nil
	}
	info, statErr := file.Stat()
	if statErr != nil {
		return errors.Join(err, statErr)
	}
	// File systems that know no owners: it is the user's already.
	if uid, gid := idsOf(info); !own || int(uid) == a.outside.UID && int(gid) == a.outside.GID {
		return nil
	}
	return err
}
