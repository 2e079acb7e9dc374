package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/tend-run/tend/internal/lib/budget"
)

const (
	// MaxEntries is the most entries of one listing.
	MaxEntries = 200_000
	// MaxDepth is the deepest listing; larger numbers mean this one. No path
	// that the kernel takes is deeper.
	MaxDepth = 2048
)

// List lists the directory in lexical order, each directory before what is in it, down
// to depth levels (0 means 1). A path that is a symbolic link is followed; links inside
// are not. Paths of entries start with the path as asked for. Entries that vanish
// meanwhile, and the content of directories that the user may not read, are omitted. If
// an entry cannot be examined, because its directory may be read but not entered, or
// its mount does not answer, only its name and its type according to the directory are
// listed.
func (f FS) List(ctx context.Context, path string, depth uint32) ([]Entry, error) {
	asked, err := f.Resolve(path)
	if err != nil {
		return nil, err
	}
	l := &lister{held: budget.Of(ctx)}
	err = f.Do(ctx, func(a *Actor) error {
		l.a, l.names = a, a.owners()
		return pathError("list", asked, l.walk(asked, int(min(max(depth, 1), MaxDepth)), true))
	})
	if err != nil {
		return nil, err
	}
	return l.entries, nil
}

// lister collects the entries of one call of List.
type lister struct {
	a       *Actor
	names   *owners
	held    *budget.Charge // of the request that the entries are for
	entries []Entry
}

// heldPiece is for how much the entries of a listing are charged at a time, in bytes.
const heldPiece = 256 << 10

// walk lists dir, and what is below it down to the depth.
func (l *lister) walk(dir string, depth int, follow bool) error {
	entries, err := l.read(dir, follow)
	if err != nil {
		return err
	}
	if depth == 1 {
		l.entries = append(l.entries, entries...)
		return nil
	}
	for _, e := range entries {
		if len(l.entries) == MaxEntries {
			return &PathError{Op: "list", Path: dir, Kind: ErrTooMany}
		}
		l.entries = append(l.entries, e)
		if e.Type != TypeDir || e.Target != "" {
			continue
		}
		if err := unlessGone(l.walk(e.Path, depth-1, false)); err != nil {
			return err
		}
	}
	return nil
}

// read describes the entries of one directory.
func (l *lister) read(path string, follow bool) ([]Entry, error) {
	if err := l.a.fresh(); err != nil {
		return nil, err
	}
	dir, err := l.a.open(path, follow)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	info, err := dir.info()
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &PathError{Op: "list", Path: path, Kind: ErrNotDir}
	}
	names, err := l.a.names(dir)
	if err != nil {
		return nil, err
	}
	if len(l.entries)+len(names) > MaxEntries {
		return nil, &PathError{Op: "list", Path: path, Kind: ErrTooMany}
	}
	at := dir.at("")
	entries := make([]Entry, 0, len(names))
	size := 0
	for i, n := range names {
		if i%1024 == 0 && l.a.ctx.Err() != nil {
			return nil, l.a.ctx.Err()
		}
		info, err := os.Lstat(at + n.Name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) { // the latter below /proc
			continue
		}
		if err != nil {
			entries = append(entries, entryOfName(path, n))
			continue
		}
		l.a.root.shift(info)
		entries = append(entries, l.a.entryOf(entryPath(path, n.Name), info, way{at + n.Name, false}, l.names))
		if size += 2 * entries[len(entries)-1].size(); size < heldPiece { // as it is, and as it is answered
			continue
		}
		if err := l.held.Add(int64(size)); err != nil {
			return nil, err
		}
		size = 0
	}
	return entries, l.held.Add(int64(size))
}

// entryOfName is all that a directory shows of an entry.
func entryOfName(dir string, n Name) Entry {
	e := Entry{
		Name:        strings.ToValidUTF8(n.Name, "\uFFFD"),
		Path:        strings.ToValidUTF8(entryPath(dir, n.Name), "\uFFFD"),
		Permissions: n.Type.String(),
	}
	switch {
	case n.Type.IsRegular():
		e.Type = TypeFile
	case n.Type.IsDir():
		e.Type = TypeDir
	case n.Type&fs.ModeSymlink != 0:
		e.Target = e.Path
	}
	return e
}

func entryPath(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}
