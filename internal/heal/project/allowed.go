package project

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/heal/guard"
)

// never is what nobody allows to read or change: what it shows of processes may be a key.
var never = []string{"/proc", "/sys", "/dev", "/run/secrets"}

// allowed are the files of a place, of which a person has allowed one.
type allowed struct{ l *Local }

// Allowed implements Project.
func (l *Local) Allowed() Files { return allowed{l} }

// files are those by the rules of the project, or those that a person has allowed.
func (l *Local) files(byPerson bool) Files {
	if byPerson {
		return l.Allowed()
	}
	return l
}

// openFree opens the guard of what a person has allowed.
func (l *Local) openFree() (*guard.Guard, error) {
	if l.free != nil {
		return l.free, nil
	}
	c := guard.Config{Root: "/", Hidden: append(slices.Clone(never), l.c.Hide...), Allowed: true}
	own, err := l.stateHidden()
	if err != nil {
		return nil, err
	}
	c.Hidden = slices.DeleteFunc(append(c.Hidden, own...), func(path string) bool { return l.atHome() && inside(l.c.Root, path) })
	l.free, err = guard.Open(c)
	return l.free, err
}

// stateHidden are the directories of the daemon that are nobody's. Around a sandbox's own
// directory it is all that is there beside the way to it; of another user that may list
// nothing there, the kernel keeps it.
func (l *Local) stateHidden() (all []string, err error) {
	if l.c.StateDir == "" {
		return nil, nil
	}
	if !l.atHome() || !inside(l.c.Root, l.c.StateDir) {
		return []string{l.c.StateDir}, nil
	}
	for dir := l.c.StateDir; dir != l.c.Root; {
		rest, err := filepath.Rel(dir, l.c.Root)
		if err != nil {
			return nil, err
		}
		next, _, _ := strings.Cut(rest, "/")
		if home, err := filepath.EvalSymlinks(l.c.Home); err == nil && inside(dir, home) {
			break
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		for _, e := range entries {
			if e.Name() != next {
				all = append(all, filepath.Join(dir, e.Name()))
			}
		}
		dir = filepath.Join(dir, next)
	}
	return all, nil
}

// Where implements Project.
func (l *Local) Where(_ context.Context, name string) (string, error) {
	g, err := l.openFree()
	if err != nil {
		return "", err
	}
	full := filepath.FromSlash(name)
	if !filepath.IsAbs(full) {
		full = filepath.Join(l.c.Root, full)
	}
	real, err := g.Check(filepath.Clean(full), false)
	if err != nil {
		return "", err
	}
	return filepath.Join("/", filepath.FromSlash(real)), nil
}

// at returns the guard for a path that Where has returned, if it still leads there.
func (f allowed) at(ctx context.Context, path string) (*guard.Guard, error) {
	now, err := f.l.Where(ctx, path)
	if err == nil && now != path {
		err = errors.New("it leads elsewhere by now; ask again")
	}
	return f.l.free, err
}

// ReadFile implements Files.
func (f allowed) ReadFile(ctx context.Context, path string, off, most int64) ([]byte, int64, error) {
	g, err := f.at(ctx, path)
	if err != nil {
		return nil, 0, err
	}
	return g.ReadFile(path, off, most)
}

// WriteFile implements Files.
func (f allowed) WriteFile(ctx context.Context, path string, data []byte) error {
	g, err := f.at(ctx, path)
	if err != nil {
		return err
	}
	return g.WriteFile(path, data)
}

// List implements Files.
func (f allowed) List(ctx context.Context, path string, most int) ([]guard.Entry, bool, error) {
	g, err := f.at(ctx, path)
	if err != nil {
		return nil, false, err
	}
	return g.List(path, most)
}

// allowedRemote is the same of a project that another process works on.
type allowedRemote struct{ r *Remote }

// Allowed implements Project.
func (r *Remote) Allowed() Files { return allowedRemote{r} }

// Where implements Project.
func (r *Remote) Where(ctx context.Context, name string) (string, error) {
	return ask[string](ctx, r, "where", name)
}

// ReadFile implements Files.
func (f allowedRemote) ReadFile(ctx context.Context, path string, off, most int64) ([]byte, int64, error) {
	out, err := ask[fileResult](ctx, f.r, "read", fileArgs{Name: path, Off: off, Most: most, Allowed: true})
	return out.Data, out.Size, err
}

// WriteFile implements Files.
func (f allowedRemote) WriteFile(ctx context.Context, path string, data []byte) error {
	return f.r.do(ctx, "write", fileArgs{Name: path, Data: data, Allowed: true})
}

// List implements Files.
func (f allowedRemote) List(ctx context.Context, path string, most int) ([]guard.Entry, bool, error) {
	out, err := ask[fileResult](ctx, f.r, "list", fileArgs{Name: path, Most: int64(most), Allowed: true})
	return out.Entries, out.More, err
}
