package project

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/git"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// booksDir is where a project has playbooks of its own.
const booksDir = ".tend/playbooks"

// healDir is where a project keeps what there is of a repair that is done with its user's
// rights, by the ID of the episode.
const healDir = ".tend/heal"

// Local is a project that this process works on, with its own rights.
type Local struct {
	c     Config
	alias string // the root as the configuration names it
	guard *guard.Guard
	free  *guard.Guard // for what a person has allowed; nil: nobody has yet
	books *playbook.Books
	point *checkpoint.Point
	// unseen are the entries .git of repositories that no command sees.
	unseen []string
	// seen is how what was changed in a view was before, at the newest checkpoint.
	seen map[string]checkpoint.Standing
	// kept are the sums of what was uncommitted in files that a command has changed.
	kept map[string]string
}

var _ Project = (*Local)(nil)

// Open opens a project.
func Open(c Config) (*Local, Opened, error) {
	var o Opened
	root, err := filepath.EvalSymlinks(c.Root)
	if err != nil {
		return nil, o, fmt.Errorf("the project's directory cannot be opened: %w", err)
	}
	alias := c.Root
	c.Root, o.Root = root, root
	own := c.Redact == nil
	if own {
		c.Redact = guard.NewRedactor()
		c.Redact.AddEnv(c.Env)
	}
	l := &Local{c: c, alias: alias}
	files, repositories, err := envFiles(root, c.Cwd)
	if err != nil {
		return nil, o, err
	}
	secrets := l.history(repositories, &o)
	for _, name := range files {
		data, err := guard.ReadVariables(name)
		if err != nil {
			continue // one that cannot be read is shown to nobody either
		}
		secrets = append(secrets, git.Version{Path: name, Data: data})
	}
	for _, f := range secrets {
		c.Redact.AddFile(f.Path, f.Data)
	}
	if own {
		o.Secrets = secrets
	}
	if l.guard, err = guard.Open(guard.Config{Root: root, Protected: c.Protected, Files: c.Files}); err != nil {
		return nil, o, fmt.Errorf("the project's directory cannot be opened: %w", err)
	}
	if l.books, err = playbook.Load(filepath.Join(root, filepath.FromSlash(booksDir))); err != nil {
		o.Notes = append(o.Notes, "the project's playbooks are left out: "+err.Error())
		if l.books, err = playbook.Load(); err != nil {
			return nil, o, errors.Join(err, l.guard.Close())
		}
	}
	return l, o, nil
}

// Close implements Project.
func (l *Local) Close() error {
	var err error
	if l.point != nil {
		err = l.point.Close()
	}
	if l.free != nil {
		err = errors.Join(err, l.free.Close())
	}
	return errors.Join(err, l.guard.Close())
}

// Root implements Project.
func (l *Local) Root() string { return l.c.Root }

// Match implements Project.
func (l *Local) Match(ctx context.Context, e playbook.Evidence) ([]playbook.Plan, error) {
	e.Root, e.Alias = l.c.Root, l.alias
	// The service's directory may be named by a symbolic link, as the root may.
	if dir, err := filepath.EvalSymlinks(e.Dir); err == nil {
		e.Dir = dir
	}
	return l.books.Match(ctx, e), nil
}

// ReadFile implements Project.
func (l *Local) ReadFile(_ context.Context, name string, off, most int64) ([]byte, int64, error) {
	return l.guard.ReadFile(name, off, most)
}

// WriteFile implements Project.
func (l *Local) WriteFile(_ context.Context, name string, data []byte) error {
	if err := l.restorable(name); err != nil {
		return err
	}
	return l.guard.WriteFile(name, data)
}

// List implements Project.
func (l *Local) List(_ context.Context, dir string, most int) ([]guard.Entry, bool, error) {
	return l.guard.List(dir, most)
}

// Search implements Project.
func (l *Local) Search(ctx context.Context, re, glob string, most int) ([]guard.Hit, bool, error) {
	return l.guard.Search(ctx, re, glob, most)
}

// SetEnv implements Project.
func (l *Local) SetEnv(_ context.Context, file, name, value string) error {
	l.c.Redact.AddSecret(name, value)
	if err := l.restorable(file); err != nil {
		return err
	}
	return l.guard.SetEnv(file, name, value)
}

// CheckEnv implements Project.
func (l *Local) CheckEnv(_ context.Context, file, name, value string) error {
	l.c.Redact.AddSecret(name, value)
	if err := l.restorable(file); err != nil {
		return err
	}
	return l.guard.CheckEnv(file, name, value)
}

// CheckOut implements Project.
func (l *Local) CheckOut(ctx context.Context, name string) error {
	r, err := git.Open(ctx, l.c.Root)
	if err != nil {
		return err
	}
	return r.CheckOut(ctx, l.c.Root, name)
}

// Absent implements Project.
func (l *Local) Absent(_ context.Context, name string) error {
	if _, err := os.Lstat(l.full(name)); err == nil {
		return fmt.Errorf("%s is there again", name)
	}
	return nil
}

func (l *Local) full(name string) string { return filepath.Join(l.c.Root, filepath.FromSlash(name)) }

// Truncate implements Project. Whoever writes the log goes on. A writer that does not append
// leaves a hole, which takes no room.
func (l *Local) Truncate(_ context.Context, name string, keep int64) (string, error) {
	path := l.full(name)
	f, err := atomicfile.Open(path, os.O_RDWR)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	keep = min(max(keep, 0), 16<<20, st.Size())
	tail, err := io.ReadAll(io.NewSectionReader(f, st.Size()-keep, keep))
	if err != nil {
		return "", err
	}
	if err := f.Truncate(0); err != nil {
		return "", err
	}
	_, err = f.WriteAt(tail, 0)
	return fmt.Sprintf("cut %s from %d to %d bytes", filepath.Base(path), st.Size(), keep), err
}

// maxWalk bounds the names that are looked at for files of variables, in the project and in
// another directory of the service.
const (
	maxWalk      = 1_000_000
	maxWalkApart = 50_000
)

// envFiles are the .env-like files of the project and of the service, and the directories below
// in which repositories are. A project in which not all can be found is an error: what is in the
// others would be shown.
func envFiles(root, cwd string) (all, repositories []string, err error) {
	add := func(list *[]string, path string) {
		if !slices.Contains(*list, path) {
			*list = append(*list, path)
		}
	}
	walk := func(dir string, most int) (n int) {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if n++; n > most {
				return fs.SkipAll
			}
			if err != nil {
				return nil
			}
			if e.Name() == ".git" {
				add(&repositories, filepath.Dir(path))
			}
			switch {
			case e.IsDir() && path != dir && (e.Name() == "node_modules" || e.Name() == ".git" || e.Name() == ".venv"):
				return fs.SkipDir
			case (strings.HasPrefix(e.Name(), ".env") || guard.IsEnv(e.Name())) && !e.IsDir():
				add(&all, path)
			}
			return nil
		})
		return n
	}
	if walk(root, maxWalk) > maxWalk {
		return nil, nil, fmt.Errorf("the project has more than %d files, too many to find those with secrets: "+
			"keep what is large outside of it", maxWalk)
	}
	if !inside(cwd, root) {
		walk(cwd, maxWalkApart)
	}
	return all, repositories, nil
}
