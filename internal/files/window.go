package files

import (
	"context"
	"os"
	"slices"
	"strings"
)

// Window is a part of the entries of a directory.
type Window struct {
	// Match keeps the names that have this text in them, in letters of any case.
	Match string
	// From is how many entries are left out before, and Most how many follow; 0 is
	// [MaxEntries].
	From, Most int
}

// ListSome lists a window of the directory: directories first, each kind in lexical
// order. It returns the total number of matching entries. It examines only the returned
// entries, so a directory may have as many names as [Actor.Names] allows. Links are
// listed among the entries that are not directories. Entries are as in [FS.List],
// except that an entry that vanishes meanwhile keeps its place, as a name without
// facts.
func (f FS) ListSome(ctx context.Context, path string, w Window) (entries []Entry, total int, err error) {
	asked, err := f.Resolve(path)
	if err != nil {
		return nil, 0, err
	}
	err = f.Do(ctx, func(a *Actor) error {
		l := &lister{a: a, names: a.owners()}
		total, err = l.window(asked, w)
		entries = l.entries
		return pathError("list", asked, err)
	})
	if err != nil {
		return nil, 0, err
	}
	return entries, total, nil
}

func (l *lister) window(path string, w Window) (total int, err error) {
	dir, err := l.a.follow(path)
	if err != nil {
		return 0, err
	}
	defer dir.close()
	info, err := dir.info()
	if err != nil {
		return 0, err
	}
	if !info.IsDir() {
		return 0, &PathError{Op: "list", Path: path, Kind: ErrNotDir}
	}
	names, err := l.a.names(dir)
	if err != nil {
		return 0, err
	}
	if w.Match != "" {
		low := strings.ToLower(w.Match)
		names = slices.DeleteFunc(names, func(n Name) bool { return !strings.Contains(strings.ToLower(n.Name), low) })
	}
	slices.SortStableFunc(names, func(a, b Name) int { return rank(a) - rank(b) })
	most := w.Most
	if most <= 0 || most > MaxEntries {
		most = MaxEntries
	}
	from := min(max(w.From, 0), len(names))
	for _, n := range names[from:min(from+most, len(names))] {
		if err := l.a.Err(); err != nil {
			return 0, err
		}
		info, err := os.Lstat(dir.at(n.Name))
		if err != nil {
			l.entries = append(l.entries, entryOfName(path, n))
			continue
		}
		l.a.root.shift(info)
		l.entries = append(l.entries, l.a.entryOf(entryPath(path, n.Name), info, way{dir.at(n.Name), false}, l.names))
	}
	return len(names), nil
}

func rank(n Name) int {
	if n.Type.IsDir() {
		return 0
	}
	return 1
}
