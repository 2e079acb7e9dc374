package files

import (
	"io/fs"
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

// Entry describes a path. For a symbolic link, Type and Mode are those of its target;
// everything else is the link's.
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
	// Mine: it belongs to the [FS]'s user.
	Mine     bool
	Modified time.Time // zero if it is not known
	// Target is set for symbolic links: where the link leads in the end, or
	// its own path if that is not known.
	Target string
	// Metadata is the metadata of the upload; nil if there is none.
	Metadata map[string]string
}

// Stat describes the path; it does not follow a last symbolic link.
func (f FS) Stat(path string) (entry Entry, err error) {
	abs, err := f.Resolve(path)
	if err != nil {
		return Entry{}, err
	}
	err = f.do(func(a *Actor) error {
		entry, err = a.entry(abs, a.owners())
		return err
	})
	return entry, err
}

func (a *Actor) entry(path string, names *owners) (Entry, error) {
	h, err := a.nofollow(path)
	if err != nil {
		return Entry{}, pathError("stat", path, err)
	}
	defer h.close()
	info, err := h.info()
	if err != nil {
		return Entry{}, pathError("stat", path, err)
	}
	return a.entryOf(path, info, way{h.self(), true}, names), nil
}

// way is a path by which a file is reached that was opened or looked at.
type way struct {
	path   string
	follow bool // it is a handle's own
}

// entryOf describes a path, of which the file is reached by the way.
func (a *Actor) entryOf(path string, info fs.FileInfo, file way, names *owners) Entry {
	e := Entry{
		Name:        strings.ToValidUTF8(info.Name(), "\uFFFD"),
		Path:        strings.ToValidUTF8(path, "\uFFFD"),
		Size:        info.Size(),
		Permissions: info.Mode().String(),
		Modified:    info.ModTime(),
	}
	uid, gid := idsOf(info)
	e.Owner, e.Group = names.names(uid, gid)
	e.Mine = int(uid) == a.user.UID
	if info.Mode()&fs.ModeSymlink == 0 {
		e.describe(info, file)
		return e
	}
	e.Target = e.Path
	h, err := a.follow(path)
	if err != nil {
		return e
	}
	defer h.close()
	if end, err := h.real(); err == nil {
		e.Target = strings.ToValidUTF8(end, "\uFFFD")
	}
	if target, err := h.info(); err == nil {
		e.describe(target, way{h.self(), true})
	}
	return e
}

// describe says what is at the end of links.
func (e *Entry) describe(info fs.FileInfo, file way) {
	e.Mode = info.Mode().Perm()
	switch {
	case info.Mode().IsRegular():
		e.Type = TypeFile
	case info.IsDir():
		e.Type = TypeDir
	default:
		return
	}
	e.Metadata = readMetadata(file)
}
