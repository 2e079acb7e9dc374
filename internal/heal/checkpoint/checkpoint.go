package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// ErrNone is the error of Open if there is no complete checkpoint.
var ErrNone = errors.New("there is no checkpoint")

// LimitError says that a project is too large for a checkpoint.
type LimitError struct {
	What  string // "names", "files" or "bytes"
	Limit int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the project has more than %d %s, too much for a checkpoint: keep what is large outside of it, or in directories that git ignores", e.Limit, e.What)
}

// Options of Take and Open, which must receive the same ones.
type Options struct {
	Root  string   // absolute path of the project
	Dir   string   // absolute path of a private directory for this checkpoint alone; made with mode 0700 if it is missing
	ID    string   // letters, digits, ".", "_" and "-", 64 at most: the name of files beside the index of git
	Skip  []string // absolute paths of directories in the project that are not a part of it, such as the daemon's state
	Leave []string // globs below the root: data of the service, never rolled back nor committed

	step func(string) // a test is told of each step
}

// Left is a path that was left out.
type Left struct {
	Path   string
	Reason string
}

// Point is a checkpoint. Its methods may not be called at the same time.
type Point struct {
	opts    Options
	root    *os.Root
	git     *repository
	noGit   string // why there is none
	skip    map[name]bool
	ignored map[string]bool
	tracked map[name]bool // while it is taken
	taking  bool
	opened  bool // and nothing was seen since: what has changed may be anybody's
	omitted []Left

	taken tree          // as it was when the checkpoint was taken
	moves map[name]move // what has been seen to change since
	base  tree          // what Restore goes back to
	last  tree          // what was seen last
}

// move is what has become of one path since the checkpoint was taken.
type move struct {
	Base    *entry // where Restore goes back to; nil: nothing
	Last    *entry // what was seen last; nil: nothing
	Unclear bool   // somebody's edit could not be merged: a copy is kept
	// Unseen: its writer died before it reported the change, which only counts as the
	// healer's.
	Unseen bool `json:",omitempty"`
}

// saved is the file of a checkpoint.
type saved struct {
	Version int
	Root    name
	Git     bool
	NoGit   string
	Ignored []name
	Omitted []Left
	Tree    []savedEntry
}

type savedEntry struct {
	Path  name
	Entry *entry
}

type savedMove struct {
	Path name
	Move move
}

// Directories in that of a checkpoint.
const (
	// KeptDir has copies of content that was not the healer's. They stay when the
	// checkpoint is dropped.
	KeptDir = "kept"
	// StoreDir has content. It is created first, and removed last.
	StoreDir = "store"
)

const (
	version   = 1
	pointFile = "checkpoint.json"
	movesFile = "moves.json"
	halfFile  = "copy" // that is being made
	maxSaved  = 512 << 20
)

var validID = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)

// Take takes a checkpoint of the project. It first removes what a killed Take left in Dir.
func Take(ctx context.Context, o Options) (*Point, error) {
	p, err := open(o)
	if err != nil {
		return nil, err
	}
	if err := p.take(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take a checkpoint of %s: %w", o.Root, err), p.Close())
	}
	return p, nil
}

func open(o Options) (*Point, error) {
	if o.step == nil {
		o.step = func(string) {}
	}
	switch {
	case !filepath.IsAbs(o.Root) || !filepath.IsAbs(o.Dir):
		return nil, errors.New("the root and the directory of a checkpoint are absolute paths")
	case !validID.MatchString(o.ID) || len(o.ID) > 64 || strings.HasSuffix(o.ID, ".lock"):
		return nil, fmt.Errorf("%.80q is no name for a checkpoint: use letters, digits, _, - and . between them, at most 64", o.ID)
	}
	for _, glob := range o.Leave {
		if !doublestar.ValidatePattern(glob) {
			return nil, fmt.Errorf("%.80q is no glob", glob)
		}
	}
	real, err := filepath.EvalSymlinks(o.Root)
	if err != nil {
		return nil, err
	}
	o.Root = real
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(o.Root)
	if err != nil {
		return nil, err
	}
	p := &Point{opts: o, root: root, skip: map[name]bool{}, moves: map[name]move{}}
	for _, dir := range append([]string{o.Dir}, o.Skip...) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		if rel, err := filepath.Rel(o.Root, dir); err == nil && rel != "." && filepath.IsLocal(rel) {
			p.skip[name(filepath.ToSlash(rel))] = true
		}
	}
	return p, nil
}

func (p *Point) take(ctx context.Context) error {
	if _, err := os.Lstat(p.path(pointFile)); err == nil {
		return fmt.Errorf("%s holds a checkpoint already", p.opts.Dir)
	}
	if err := errors.Join(p.removeAll(), os.MkdirAll(p.path(StoreDir), 0o700)); err != nil {
		return err
	}
	p.opts.step("cleared")
	p.taking = true
	defer func() { p.taking, p.tracked = false, nil }()
	p.git, p.noGit = openRepository(ctx, p.opts.Root)
	var err error
	if p.taken, err = p.takeTree(ctx); err != nil {
		return err
	}
	p.opts.step("content")
	s := saved{Version: version, Root: name(p.opts.Root), Git: p.git != nil, NoGit: p.noGit, Omitted: p.omitted}
	for path := range p.ignored {
		s.Ignored = append(s.Ignored, name(path))
	}
	for _, path := range p.taken.sorted() {
		s.Tree = append(s.Tree, savedEntry{path, p.taken[path]})
	}
	if err := p.save(pointFile, s); err != nil {
		return err
	}
	p.replay()
	return nil
}

// Open opens an existing checkpoint, with the options of Take.
func Open(ctx context.Context, o Options) (*Point, error) {
	p, err := open(o)
	if err != nil {
		return nil, err
	}
	if err := p.load(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.opened = true
	return p, nil
}

func (p *Point) load(ctx context.Context) error {
	var s saved
	b, err := atomicfile.Read(p.path(pointFile), maxSaved)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNone
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the checkpoint: %w", err)
	case s.Version != version:
		return fmt.Errorf("the checkpoint has version %d; this tend knows %d", s.Version, version)
	case string(s.Root) != p.opts.Root:
		return fmt.Errorf("the checkpoint is one of %q, not of %q", s.Root, p.opts.Root)
	}
	p.taken, p.omitted, p.noGit, p.ignored = tree{}, s.Omitted, s.NoGit, map[string]bool{}
	for _, path := range s.Ignored {
		p.ignored[string(path)] = true
	}
	for _, e := range s.Tree {
		p.taken[e.Path] = e.Entry
	}
	if s.Git {
		if p.git, p.noGit = openRepository(ctx, p.opts.Root); p.git == nil {
			return fmt.Errorf("the project was in a git repository, and now %s", p.noGit)
		}
	}
	var moves []savedMove
	b, err = atomicfile.Read(p.path(movesFile), maxSaved)
	if err == nil {
		err = json.Unmarshal(b, &moves)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	for _, m := range moves {
		p.moves[m.Path] = m.Move
	}
	p.replay()
	return nil
}

// saveMoves writes what has been seen to change.
func (p *Point) saveMoves(moves map[name]move) error {
	list := []savedMove{}
	for path, m := range moves {
		list = append(list, savedMove{path, m})
	}
	return p.save(movesFile, list)
}

// replay makes base and last from what was taken and moved.
func (p *Point) replay() {
	p.base, p.last = tree{}, tree{}
	for path, e := range p.taken {
		p.base[path], p.last[path] = e, e
	}
	for path, m := range p.moves {
		p.set(path, m)
	}
}

func (p *Point) set(path name, m move) {
	for t, e := range map[*tree]*entry{&p.base: m.Base, &p.last: m.Last} {
		if e == nil {
			delete(*t, path)
		} else {
			(*t)[path] = e
		}
	}
}

// Close releases the directory. The checkpoint stays.
func (p *Point) Close() error { return p.root.Close() }

// Drop removes the checkpoint. Copies that Restore kept stay. The Point is closed.
func (p *Point) Drop(ctx context.Context) error {
	if p.git != nil {
		if err := p.git.dropIndex(ctx, filepath.Join(p.git.dir, "index"), p.opts.ID); err != nil {
			return err
		}
	}
	p.opts.step("dropped")
	if err := os.RemoveAll(p.path(pointFile)); err != nil {
		return err
	}
	p.opts.step("gone")
	return errors.Join(p.removeAll(), p.Close())
}

// removeAll removes what is in the directory but for copies, the content last. Besides the
// files of a checkpoint these are those that a process which was killed was writing.
func (p *Point) removeAll() error {
	all, err := os.ReadDir(p.opts.Dir)
	for _, e := range all {
		if e.Name() != KeptDir && e.Name() != StoreDir {
			err = errors.Join(err, os.RemoveAll(p.path(e.Name())))
		}
	}
	removeEmpty(p.path(KeptDir))
	return errors.Join(err, os.RemoveAll(p.path(StoreDir)))
}

// removeEmpty removes the directories below one that lead to no file, and that one, too, if it
// leads to none.
func removeEmpty(dir string) {
	all, _ := os.ReadDir(dir) // none, if there is no directory
	for _, e := range all {
		if e.IsDir() {
			removeEmpty(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir) // unless something is in it
}

// Clear removes what a killed Take or Drop left when Open returns ErrNone. Copies that Restore kept
// stay.
func Clear(o Options) error {
	p, err := open(o)
	if err != nil {
		return err
	}
	return errors.Join(p.removeAll(), p.Close())
}

func (p *Point) path(base string) string { return filepath.Join(p.opts.Dir, base) }

func (p *Point) save(file string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Synced(p.path(file), b, 0o600)
}
