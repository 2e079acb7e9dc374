package checkpoint

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	maxNames       = 200_000
	maxFile        = 64 << 20
	maxContent     = 256 << 20
	maxPlainFiles  = 10_000
	maxIgnored     = 2_000
	maxIgnoredFile = 1 << 20
	maxIgnoredAll  = 64 << 20
)

// name is a path with any bytes; JSON has it quoted.
type name string

// MarshalText implements [encoding.TextMarshaler].
func (n name) MarshalText() ([]byte, error) { return []byte(strconv.QuoteToASCII(string(n))), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *name) UnmarshalText(b []byte) error {
	s, err := strconv.Unquote(string(b))
	*n = name(s)
	return err
}

// kinds of entries.
const (
	file      = "f"
	directory = "d"
	link      = "l"
)

// entry is a file, directory or link as it was seen.
type entry struct {
	Kind    string
	Mode    fs.FileMode // permissions, with setuid, setgid and sticky
	UID     int
	GID     int
	Size    int64
	MTime   int64  // ns
	CTime   int64  // ns, 0 where there is none
	Inode   uint64 // 0 where there is none
	Seen    int64  // ns: the clock before it was read
	Sum     string // SHA-256 of the content; "" for a file that was too large to read
	Oid     string // name of the content in git, in a repository
	Target  name   // of a link
	Ignored bool   // by git
	Held    bool   // the content can be brought back
}

// same reports whether two entries (nil: nothing) are the same to a user.
func same(a, b *entry) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Kind != b.Kind || a.Kind != link && a.Mode != b.Mode {
		return false
	}
	return sameContent(a, b)
}

func sameContent(a, b *entry) bool {
	switch {
	case a == nil || b == nil || a.Kind != b.Kind:
		return false
	case a.Kind == link:
		return a.Target == b.Target
	case a.Kind == directory:
		return true
	case a.Sum == "" || b.Sum == "":
		return a.Size == b.Size && a.MTime == b.MTime && a.Inode == b.Inode
	}
	return a.Sum == b.Sum
}

// tree is what is below the root, by path.
type tree map[name]*entry

// beyondLink reports whether one of the directories of a path is a link.
func (t tree) beyondLink(path name) bool {
	for dir := parent(path); dir != ""; dir = parent(dir) {
		if e := t[dir]; e != nil && e.Kind == link {
			return true
		}
	}
	return false
}

// sorted returns the paths, directories before what is in them.
func (t tree) sorted() []name {
	paths := make([]name, 0, len(t))
	for p := range t {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

// scan looks at everything below the root. A file whose status is that of an entry that is
// known is not read again. keep, if there is one, is called with the content of each
// file that was read.
func (p *Point) scan(ctx context.Context, known tree, keep func(path name, e *entry, data []byte) error) (tree, error) {
	s := &scanner{ctx: ctx, p: p, known: known, keep: keep, found: tree{}, parents: map[name]bool{}}
	for path := range p.base {
		for dir := parent(path); dir != "" && !s.parents[dir]; dir = parent(dir) {
			s.parents[dir] = true
		}
	}
	for path := range p.tracked {
		for dir := parent(path); dir != "" && !s.parents[dir]; dir = parent(dir) {
			s.parents[dir] = true
		}
	}
	return s.found, s.dir(p.root, "", false)
}

type scanner struct {
	ctx     context.Context
	p       *Point
	known   tree
	keep    func(name, *entry, []byte) error
	found   tree
	parents map[name]bool // directories that are needed, whatever their names
}

func parent(path name) name {
	if i := strings.LastIndexByte(string(path), '/'); i >= 0 {
		return path[:i]
	}
	return ""
}

// temporary begins the names of what Restore is writing.
const temporary = ".tend-restore-"

func (s *scanner) dir(dir *os.Root, at name, ignored bool) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	d, err := dir.Open(".")
	if err != nil {
		return s.p.unreadable(at, err)
	}
	names, err := d.Readdirnames(maxNames + 1)
	d.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return s.p.unreadable(at, err)
	}
	if at != "" && slices.Contains(names, ".git") && !s.parents[at] {
		s.p.omit(at, "it is a git repository of its own, or a submodule")
		delete(s.found, at)
		return nil
	}
	slices.Sort(names)
	for _, base := range names {
		path := name(base)
		if at != "" {
			path = at + "/" + path
		}
		if strings.HasPrefix(base, temporary) || base == ".git" || path == ".tend" || s.p.skip[path] {
			continue
		}
		info, err := dir.Lstat(base)
		if err != nil {
			continue
		}
		if len(s.found) >= maxNames {
			return &LimitError{"names", maxNames}
		}
		ign := ignored || s.p.ignored[string(path)] || info.IsDir() && s.p.ignored[string(path)+"/"]
		e := &entry{Mode: info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky), Ignored: ign, Seen: time.Now().UnixNano()}
		e.stat(info)
		switch {
		case info.IsDir():
			if s.derived(path, base, ign) {
				s.p.omit(path, toolsMakeIt)
				continue
			}
			e.Kind, e.Held = directory, true
			s.found[path] = e
			sub, err := dir.OpenRoot(base)
			if err != nil {
				if err := s.p.unreadable(path, err); err != nil {
					return err
				}
				continue
			}
			if seen, serr := sub.Stat("."); serr == nil && os.SameFile(seen, info) {
				err = s.dir(sub, path, ign)
			}
			sub.Close()
			if err != nil {
				return err
			}
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := dir.Readlink(base)
			if err != nil {
				continue
			}
			e.Kind, e.Target, e.Held = link, name(to), true
			s.found[path] = e
		case info.Mode().IsRegular():
			e.Kind = file
			s.found[path] = e
			if err := s.file(dir, base, path, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// toolsMakeIt is why a directory is left out.
const toolsMakeIt = "tools make it again"

func (s *scanner) derived(path name, base string, ignored bool) bool {
	if ofTools(base) {
		return !s.parents[path]
	}
	switch base {
	case "dist", "build", "target", ".turbo", ".parcel-cache", ".pytest_cache", ".mypy_cache", "coverage":
		return ignored && !s.parents[path]
	}
	return false
}

// ofTools reports whether a directory of this name is one that tools make, wherever it is.
func ofTools(base string) bool {
	switch base {
	case "node_modules", ".venv", "venv", "__pycache__", ".next", ".cache", ".pnpm-store":
		return true
	}
	return false
}

// settled is how long the times of a file must be past to be believed: a file
// system may give two writes one time.
const settled = 2 * time.Second

func (s *scanner) file(dir *os.Root, base string, path name, e *entry) error {
	if k := s.known[path]; k != nil && k.Kind == file && k.Sum != "" && k.Size == e.Size && k.MTime == e.MTime &&
		k.CTime == e.CTime && k.CTime != 0 && k.Inode == e.Inode && time.Duration(k.Seen-max(k.CTime, k.MTime)) > settled {
		e.Sum, e.Oid, e.Held = k.Sum, k.Oid, k.Held
		return nil
	}
	if e.Size > maxFile {
		s.p.omit(path, "it has more than 64 MiB")
		return nil
	}
	f, err := dir.OpenFile(base, os.O_RDONLY|openFlags, 0)
	if err != nil {
		s.p.omit(path, "it cannot be read: "+reason(err))
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		delete(s.found, path)
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil || len(data) > maxFile {
		s.p.omit(path, "it cannot be read, or grows")
		return nil
	}
	e.Size = int64(len(data))
	sum := sha256.Sum256(data)
	e.Sum = hex.EncodeToString(sum[:])
	if s.p.git != nil {
		e.Oid = s.p.git.oid(data)
	}
	if s.keep != nil {
		return s.keep(path, e, data)
	}
	return nil
}

// oid is the name that git gives to the content of a file.
func (r *repository) oid(data []byte) string {
	var h hash.Hash = sha1.New()
	if r.sha256 {
		h = sha256.New()
	}
	fmt.Fprintf(h, "blob %d\x00", len(data))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return err.Error()
}

// unreadable leaves a directory out. The root itself must be readable.
func (p *Point) unreadable(path name, err error) error {
	if path == "" {
		return fmt.Errorf("read the project: %w", err)
	}
	p.omit(path, "it cannot be read: "+reason(err))
	return nil
}

func (p *Point) omit(path name, why string) {
	if p.taking {
		p.omitted = append(p.omitted, Left{string(path), why})
	}
}

// leaves reports whether a path is one of the service's own.
func (p *Point) leaves(path name) bool {
	for _, glob := range p.opts.Leave {
		if doublestar.MatchUnvalidated(glob, string(path)) || doublestar.MatchUnvalidated(glob+"/**", string(path)) {
			return true
		}
	}
	return false
}

// isEnv reports whether a file may hold secrets that nobody has committed.
func isEnv(path name) bool {
	base := strings.ToLower(filepath.Base(string(path)))
	return strings.HasPrefix(base, ".env") || strings.HasSuffix(base, ".env")
}
