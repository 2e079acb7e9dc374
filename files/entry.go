package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Type is what kind of thing a path is.
type Type uint8

const (
	TypeOther Type = iota // a device, FIFO, socket, or a link that leads nowhere
	TypeFile
	TypeDir
)

// Entry is what is known of a path. Of a symbolic link, Type and Mode are
// those of what it leads to; everything else is the link's.
type Entry struct {
	Name string
	Path string
	Type Type
	Size int64
	// Mode are the permission bits.
	Mode fs.FileMode
	// Permissions is the mode in letters, as Go writes it: "-rw-r--r--",
	// "drwxr-xr-x", "Lrwxrwxrwx".
	Permissions string
	Owner       string // a name, or the number if it has none
	Group       string
	Modified    time.Time
	// Target is set for symbolic links: where the link leads in the end, or
	// its own path if that cannot be told.
	Target string
	// Metadata is what was given with the upload; nil if there is none.
	Metadata map[string]string
}

// Stat describes the path; it does not follow a last symbolic link.
func (f FS) Stat(path string) (Entry, error) {
	abs, err := f.Resolve(path)
	if err != nil {
		return Entry{}, err
	}
	return stat(abs, newOwners())
}

func stat(path string, names *owners) (Entry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Entry{}, pathError("stat", path, err)
	}
	return entryOf(path, info, names), nil
}

func entryOf(path string, info fs.FileInfo, names *owners) Entry {
	e := Entry{
		Name:        strings.ToValidUTF8(info.Name(), "\uFFFD"),
		Path:        strings.ToValidUTF8(path, "\uFFFD"),
		Size:        info.Size(),
		Permissions: info.Mode().String(),
		Modified:    info.ModTime(),
	}
	uid, gid := idsOf(info)
	e.Owner, e.Group = names.names(uid, gid)
	target := info
	if info.Mode()&fs.ModeSymlink != 0 {
		e.Target = strings.ToValidUTF8(path, "\uFFFD")
		if end, err := filepath.EvalSymlinks(path); err == nil {
			e.Target = strings.ToValidUTF8(end, "\uFFFD")
		}
		var err error
		if target, err = os.Stat(path); err != nil {
			return e
		}
	}
	e.Mode = target.Mode().Perm()
	switch {
	case target.Mode().IsRegular():
		e.Type = TypeFile
	case target.IsDir():
		e.Type = TypeDir
	}
	if e.Type != TypeOther {
		e.Metadata = readMetadata(path)
	}
	return e
}
