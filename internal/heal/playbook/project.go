package playbook

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	maxRead    = 8 << 20 // bytes of one file
	maxEntries = 20_000  // that a glob looks at
)

// derived are the directories that tools make again from what is in the project.
var derived = [...]string{
	"node_modules", ".next", ".nuxt", ".output", ".svelte-kit", ".astro", ".angular", ".parcel-cache", ".cache", ".turbo", ".vite",
	"node_modules/.vite", "node_modules/.cache", ".venv", "venv", "__pycache__", ".pytest_cache", ".mypy_cache", "dist", "build", "out",
	"target", "tmp/cache",
}

func isDerivedName(name string) bool { return slices.Contains(derived[:], name) }

func derivedNames() []string { return slices.Sorted(slices.Values(derived[:])) }

// isDerived reports whether a path is that of a derived directory.
func isDerived(rel string) bool {
	return isDerivedName(path.Base(rel)) || isDerivedName(path.Join(path.Base(path.Dir(rel)), path.Base(rel)))
}

// project is what one Match sees of a project: files below the root, without following
// a link out of it.
type project struct {
	Evidence
	ctx  context.Context // of the one Match
	root *os.Root
	dir  string // Dir below Root; "." for Root
	log  string // without colours
	// report is the last report of an error in the log.
	report string
	git    git
}

// openProject returns nil if the evidence is not of a project that can be read.
func openProject(ctx context.Context, e Evidence) *project {
	if !filepath.IsAbs(e.Root) || !filepath.IsAbs(e.Dir) {
		return nil
	}
	dir, err := filepath.Rel(e.Root, e.Dir)
	if err != nil || dir != "." && !filepath.IsLocal(dir) {
		return nil
	}
	root, err := os.OpenRoot(e.Root)
	if err != nil {
		return nil
	}
	p := &project{Evidence: e, ctx: ctx, root: root, dir: filepath.ToSlash(dir), git: git{ctx: ctx, root: e.Root}}
	if st, err := root.Stat(p.dir); err == nil && !st.IsDir() || err != nil && !p.tracksGone(p.dir) {
		root.Close()
		return nil
	}
	p.log = plainText(e.Log)
	p.report = lastReport(p.log)
	return p
}

// tracksGone reports whether git tracks something that is gone below a directory, which may
// then come back.
func (p *project) tracksGone(dir string) bool {
	for name := range p.git.deleted() {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

func (p *project) close() { p.root.Close() }

// below returns the path below the root of one that a log or a file names: absolute, a
// file: URL, or relative to a directory below the root. ok is false for a path outside,
// and for the root itself.
func (p *project) below(name, dir string) (rel string, ok bool) {
	name = strings.TrimPrefix(name, "file://")
	if name == "" || len(name) > 4096 || strings.ContainsAny(name, "\x00\n\r\\") {
		return "", false
	}
	if path.IsAbs(name) {
		for _, root := range []string{p.Root, p.Alias} {
			if rel, err := filepath.Rel(root, path.Clean(name)); root != "" && err == nil && filepath.IsLocal(rel) {
				return filepath.ToSlash(rel), rel != "."
			}
		}
		return "", false
	}
	rel = path.Join(dir, name)
	return rel, rel != "." && filepath.IsLocal(rel)
}

// unlinked reports whether no part of a path, as far as it is there, is a symbolic link
// and all but the last are directories.
func (p *project) unlinked(rel string) bool {
	parts := strings.Split(rel, "/")
	for i := range parts {
		st, err := p.root.Lstat(strings.Join(parts[:i+1], "/"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return true
		case err != nil || st.Mode()&fs.ModeSymlink != 0:
			return false
		case i < len(parts)-1 && !st.IsDir():
			return false
		}
	}
	return true
}

// maxLinks is how many links on the way of a path are followed.
const maxLinks = 16

// behindLinks returns the path to which the links on the way of one lead, though there may be
// nothing; the path itself if one of them leads out of the root.
func (p *project) behindLinks(rel string) string {
	done, rest, links := "", rel, 0
	for rest != "" {
		first, after, _ := strings.Cut(rest, "/")
		at := path.Join(done, first)
		st, err := p.root.Lstat(at)
		if err != nil || st.Mode()&fs.ModeSymlink == 0 {
			done, rest = at, after
			continue
		}
		to, err := p.root.Readlink(at)
		if links++; err != nil || links > maxLinks {
			return rel
		}
		next, ok := p.below(to, path.Dir(at))
		if !ok {
			return rel
		}
		done, rest = "", path.Join(next, after) // what it leads to may be behind links, too
	}
	return done
}

// exists reports whether there is something at a path.
func (p *project) exists(rel string) bool {
	_, err := p.root.Lstat(rel)
	return err == nil
}

// isFile and isDir follow links within the root, as the programs of the project do.
func (p *project) isFile(rel string) bool {
	st, err := p.root.Stat(rel)
	return err == nil && st.Mode().IsRegular()
}

func (p *project) isDir(rel string) bool {
	st, err := p.root.Stat(rel)
	return err == nil && st.IsDir()
}

// read returns a regular file; ok is false if there is none, or if it is too large.
func (p *project) read(rel string) (data []byte, ok bool) {
	st, err := p.root.Stat(rel)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxRead {
		return nil, false
	}
	f, err := p.root.Open(rel)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, maxRead))
	return data, err == nil
}

// has reports whether a glob below the root names something.
func (p *project) has(glob string) bool {
	if !strings.ContainsAny(glob, "*?[{") {
		return p.exists(glob)
	}
	found, looked := false, 0
	enough := errors.New("enough")
	_ = fs.WalkDir(p.root.FS(), globBase(glob), func(name string, e fs.DirEntry, err error) error { // what cannot be read is not there
		if looked++; looked > maxEntries || p.ctx.Err() != nil {
			return enough
		}
		if found, _ = doublestar.Match(glob, name); found {
			return enough
		}
		if err != nil {
			return fs.SkipDir
		}
		if e.IsDir() && (e.Name() == "node_modules" || e.Name() == ".git") && !strings.Contains(glob, e.Name()) {
			return fs.SkipDir
		}
		return nil
	})
	return found
}

// globBase is the directory that all matches of a glob are in.
func globBase(glob string) string {
	base, _ := doublestar.SplitPattern(glob)
	return base
}

// up returns the directories from dir to the root, that of the service first.
func up(dir string) (all []string) {
	for {
		all = append(all, dir)
		if dir == "." {
			return all
		}
		dir = path.Dir(dir)
	}
}

// findUp returns the nearest of the names in dir or above, and the directory.
func (p *project) findUp(dir string, names ...string) (where, name string) {
	for _, d := range up(dir) {
		for _, n := range names {
			if p.isFile(path.Join(d, n)) {
				return d, n
			}
		}
	}
	return "", ""
}
