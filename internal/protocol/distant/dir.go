package distant

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// maxDirErrors bounds the errors that a listing reports.
const maxDirErrors = 1000

// listing is one call of dir_read.
type listing struct {
	a                      *files.Actor
	root                   string // real
	depth                  int
	absolute, canonicalize bool
	entries, errors        wire.List
}

// add adds an entry. What is directly in the directory has depth 1, the directory
// itself 0.
func (l *listing) add(path, fileType string, depth int) {
	l.entries = append(l.entries, wire.Map{"path", path, "file_type", fileType, "depth", int64(depth)})
}

func (r *fileRequest) readDir() (message, error) {
	path := r.path("path")
	depth := r.f.optUint("depth", 1, math.MaxUint32)
	l := &listing{depth: int(depth), absolute: r.f.flag("absolute"), canonicalize: r.f.flag("canonicalize")}
	includeRoot := r.f.flag("include_root")
	if err := r.f.end(); err != nil {
		return nil, err
	}
	if l.depth == 0 || l.depth > files.MaxDepth {
		l.depth = files.MaxDepth
	}
	abs, err := r.fs.Resolve(path)
	if err != nil {
		return nil, err
	}
	err = r.fs.Do(r.ctx, func(a *files.Actor) error {
		l.a = a
		if l.root, err = a.Real(abs); err != nil {
			return err
		}
		info, err := a.Stat(l.root)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return faultf(kindOther, "%s is no directory", path)
		}
		if includeRoot {
			l.add(l.root, "dir", 0)
		}
		return l.walk(l.root, 1)
	})
	if err != nil {
		return nil, err
	}
	return wire.Map{"type", "dir_entries", "entries", l.entries, "errors", l.errors}, nil
}

// walk lists a directory. What is in directories that cannot be read is reported
// among the errors, but for the first.
func (l *listing) walk(dir string, depth int) error {
	children, err := l.a.Names(dir)
	if err != nil {
		if depth == 1 || errors.Is(err, context.Canceled) {
			return err
		}
		if len(l.errors) < maxDirErrors {
			f := faultOf(err)
			l.errors = append(l.errors, wire.Map{"kind", string(f.kind), "description", f.text})
		}
		return nil
	}
	for _, child := range children {
		if len(l.entries) == files.MaxEntries {
			return files.ErrTooMany
		}
		path := filepath.Join(dir, child.Name)
		l.add(l.show(path, child.Type), typeName(child.Type), depth)
		if child.Type.IsDir() && depth < l.depth {
			if err := l.walk(path, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// show is the path of an entry as it was asked for.
func (l *listing) show(path string, mode fs.FileMode) string {
	if l.canonicalize && mode&fs.ModeSymlink != 0 {
		if real, err := l.a.Real(path); err == nil {
			path = real
		}
	}
	if !l.absolute {
		if rel, err := filepath.Rel(l.root, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
	}
	return strings.ToValidUTF8(path, "\uFFFD")
}
