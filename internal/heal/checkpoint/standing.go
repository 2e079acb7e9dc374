package checkpoint

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// Standing is the state of a path at the newest Absorb or Mark.
type Standing struct {
	Seen bool   // something was there
	Sum  string // SHA-256 of its content in hex; "" for what is no file, or was not read
	Link bool
	// Held: the checkpoint has everything of it that may need to be restored.
	Held bool
	// Uncommitted: Restore would restore a file or link whose content is in no commit.
	Uncommitted bool
	// Made: it is in a directory that tools can generate again, which no checkpoint
	// contains.
	Made bool
	// Left: it belongs to the service, and is never rolled back.
	Left bool
}

// Standings distinguishes what could be lost from what can be generated again.
type Standings struct {
	p    *Point
	head map[string]blob
}

// Standings reads the last commit. Use the result before the next call of Absorb or Mark.
func (p *Point) Standings(ctx context.Context) (*Standings, error) {
	s := &Standings{p: p}
	if p.git != nil {
		var err error
		if _, s.head, err = p.git.head(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Of returns the standing of a path.
func (s *Standings) Of(path string) Standing {
	out := s.p.Standing(path)
	if base := s.p.base[name(path)]; base != nil && base.Kind != directory {
		h, ok := s.head[s.p.prefixed(path)]
		out.Uncommitted = !ok || !s.p.isBlob(base, h)
	}
	return out
}

// Standing returns the standing of a path, without whether it is uncommitted.
func (p *Point) Standing(path string) Standing {
	base, last := p.base[name(path)], p.last[name(path)]
	out := Standing{Seen: last != nil, Held: (base == nil || base.Held) && (last == nil || last.Held), Left: p.leaves(name(path))}
	if last != nil {
		out.Sum, out.Link = last.Sum, last.Kind == link
	}
	out.Made = last == nil && (slices.ContainsFunc(strings.Split(path, "/"), ofTools) || slices.ContainsFunc(p.omitted, func(l Left) bool {
		return l.Reason == toolsMakeIt && strings.HasPrefix(path, l.Path+"/")
	}))
	return out
}

func (p *Point) prefixed(path string) string {
	if p.git == nil {
		return path
	}
	return p.git.prefix + path
}

// Below lists the known files, links and directories at or below a path, each directory
// before its entries; "" means all.
func (s *Standings) Below(path string) (files, dirs []string) {
	for _, at := range s.p.last.sorted() {
		if path == "" || string(at) == path || strings.HasPrefix(string(at), path+"/") {
			if s.p.last[at].Kind == directory {
				dirs = append(dirs, string(at))
			} else {
				files = append(files, string(at))
			}
		}
	}
	return files, dirs
}

// Head returns a file of the last commit. Its error is [fs.ErrNotExist] if there is none.
func (s *Standings) Head(ctx context.Context, path string) ([]byte, error) {
	h, ok := s.head[s.p.prefixed(path)]
	if !ok || h.mode != "100644" && h.mode != "100755" {
		return nil, &fs.PathError{Op: "read the last commit's", Path: path, Err: fs.ErrNotExist}
	}
	return s.p.git.read(ctx, h.oid)
}

// Keep makes a copy of the file that Restore would restore, and returns its path. The copy
// outlives the checkpoint.
func (p *Point) Keep(ctx context.Context, path string) (string, error) {
	data, err := p.Before(ctx, path)
	if err != nil {
		return "", err
	}
	dir, err := p.keepDir()
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", err
	}
	if err := atomicfile.Synced(p.path(halfFile), data, 0o600); err != nil {
		return "", err
	}
	return to, os.Rename(p.path(halfFile), to)
}

// Kept lists the copies that Keep and Restore made.
func (p *Point) Kept() (all []Kept) {
	kept := p.path(KeptDir)
	_ = filepath.WalkDir(kept, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // what is not there was not kept
		}
		if rel, err := filepath.Rel(kept, file); err == nil {
			_, path, _ := strings.Cut(filepath.ToSlash(rel), "/")
			all = append(all, Kept{path, file})
		}
		return nil
	})
	return all
}
