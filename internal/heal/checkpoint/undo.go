package checkpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"sort"
)

// MaxUndo is the most bytes of file contents in an Undo.
const MaxUndo = 8 << 20

// Undo is for [TakeBack] if nothing was committed: the files that a repair changed, as they
// were before and as it left them.
type Undo struct {
	Files []Undone
	Dirs  []name // directories that the repair has made
}

// Undone is one file or link of an Undo.
type Undone struct {
	Path          name
	Before, After side
}

// side is what a path is before or after a repair: nothing where Kind is "".
type side struct {
	Kind     string      // file or link
	Mode     fs.FileMode // permissions of a file
	UID, GID int         // -1: not known
	Sum      string      // SHA-256 of the content, or of where a link leads to, in hex
	Data     []byte      // that itself; of After it is not kept
}

func sideOf(kind string, mode fs.FileMode, uid, gid int, data []byte) side {
	sum := sha256.Sum256(data)
	return side{Kind: kind, Mode: mode, UID: uid, GID: gid, Sum: hex.EncodeToString(sum[:]), Data: data}
}

// is reports whether two sides are the same to git: of the mode, who may run the file.
func (s side) is(o side) bool {
	return s.Kind == o.Kind && s.Sum == o.Sum && (s.Kind != file || s.Mode&0o100 == o.Mode&0o100)
}

// Undo returns the changes since the checkpoint, so that they can be taken back after the
// checkpoint is gone. why says why they cannot; both are empty if nothing changed.
func (p *Point) Undo(ctx context.Context) (u *Undo, why string, err error) {
	now, err := p.scan(ctx, p.last, nil)
	if err != nil {
		return nil, "", err
	}
	size := int64(0)
	for _, c := range p.changes(now, nil) {
		was, is := p.base[name(c.Path)], now[name(c.Path)]
		if directories(was, is) {
			continue // those that files need are made, and removed, with them
		}
		if p.moves[name(c.Path)].Unseen {
			return nil, c.Path + " may be somebody else's work: the process that changed it ended before it said what it had done", nil
		}
		one := Undone{Path: name(c.Path)}
		for _, e := range []*entry{was, is} {
			if e != nil && e.Kind == file && (e.Sum == "" || e == was && !e.Held) {
				return nil, c.Path + " is too large to be kept", nil
			}
		}
		if was != nil && was.Kind != directory {
			data := []byte(was.Target)
			if was.Kind == file {
				if size += was.Size; size > MaxUndo {
					return nil, fmt.Sprintf("what it has changed has more than %d MiB", MaxUndo>>20), nil
				}
				if data, err = p.content(ctx, was); err != nil {
					return nil, "", err
				}
			}
			one.Before = sideOf(was.Kind, was.Mode, was.UID, was.GID, data)
		}
		if is != nil && is.Kind == link {
			one.After = sideOf(link, 0, is.UID, is.GID, []byte(is.Target))
			one.After.Data = nil
		} else if is != nil && is.Kind == file {
			one.After = side{Kind: file, Mode: is.Mode, UID: is.UID, GID: is.GID, Sum: is.Sum}
		}
		if u == nil {
			u = new(Undo)
		}
		u.Files = append(u.Files, one)
	}
	if u != nil {
		for _, at := range now.sorted() {
			if was := p.base[at]; now[at].Kind == directory && (was == nil || was.Kind != directory) {
				u.Dirs = append(u.Dirs, at)
			}
		}
	}
	return u, "", nil
}

// Join returns the Undo of two changes, of which next is the later one. why says why they
// cannot be taken back together: a file that next changed was not as the first one left it,
// so other work would be lost, or they are too large. A nil Undo means no change.
func (u *Undo) Join(next *Undo) (joined *Undo, why string) {
	if u == nil || next == nil {
		return cmp.Or(u, next), ""
	}
	joined = &Undo{Dirs: slices.Concat(u.Dirs, next.Dirs)}
	slices.Sort(joined.Dirs)
	joined.Dirs = slices.Compact(joined.Dirs)
	files := map[name]Undone{}
	for _, f := range u.Files {
		files[f.Path] = f
	}
	for _, f := range next.Files {
		if first, both := files[f.Path]; both {
			if !first.After.is(f.Before) && why == "" {
				why = string(f.Path) + " was changed by somebody else between two of its changes"
			}
			f.Before = first.Before
		}
		if f.Before.is(f.After) && f.Before.Mode == f.After.Mode {
			delete(files, f.Path)
			continue
		}
		files[f.Path] = f
	}
	size := 0
	for _, f := range files {
		joined.Files = append(joined.Files, f)
		size += len(f.Before.Data)
	}
	switch {
	case size > MaxUndo:
		return nil, fmt.Sprintf("what it has changed has more than %d MiB", MaxUndo>>20)
	case len(joined.Files) == 0:
		return nil, why
	}
	sort.Slice(joined.Files, func(i, j int) bool { return joined.Files[i].Path < joined.Files[j].Path })
	return joined, why
}

// Paths are those of its files, below the root.
func (u *Undo) Paths() (all []string) {
	if u != nil {
		for _, f := range u.Files {
			all = append(all, string(f.Path))
		}
	}
	return all
}

// File and Link are what [Undo.Before] tells of a path.
const (
	File = file
	Link = link
)

// Before returns the former content of a file, or the former target of a link; kind is ""
// if there was neither. ok reports whether the path is in the Undo.
func (u *Undo) Before(path string) (content []byte, kind string, ok bool) {
	if u != nil {
		for _, f := range u.Files {
			if string(f.Path) == path {
				return f.Before.Data, f.Before.Kind, true
			}
		}
	}
	return nil, "", false
}
