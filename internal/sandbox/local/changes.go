package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Changes implements driver.Differ.
func (d *Driver) Changes(ctx context.Context, id driver.ID, dir string, skip []string, most int) ([]driver.FileChange, error) {
	s, err := d.get(ctx, string(id))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	up, closeUp, err := s.upper(&rec)
	if err != nil {
		return nil, err
	}
	defer closeUp()
	root, err := os.OpenRoot(up)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", s.id, err)
	}
	defer root.Close()
	c := &differ{root: root, up: up, skip: skip, most: most}
	at := path.Clean("/" + dir)[1:]
	for p := at; p != "." && p != ""; p = path.Dir(p) { // a link may be a program's that ran inside
		st, err := root.Lstat(p)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !st.IsDir() {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return c.all, c.look(ctx, at, "")
}

// differ looks through what a sandbox has written.
type differ struct {
	root *os.Root
	up   string
	skip []string
	most int
	all  []driver.FileChange
}

func (c *differ) add(name string, kind driver.FileChangeKind) error {
	if len(c.all) == c.most {
		return fmt.Errorf("more than %d files and directories have changed: %w", c.most, driver.ErrLimit)
	}
	c.all = append(c.all, driver.FileChange{Path: name, Kind: kind})
	return nil
}

// look adds what has changed in a directory; name is that as it is told.
func (c *differ) look(ctx context.Context, dir, name string) error {
	f, err := c.root.Open(path.Join(".", dir))
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close(), ctx.Err()); err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int {
		if a.Name() < b.Name() {
			return -1
		}
		return 1
	})
	for _, e := range entries {
		at, p := path.Join(dir, e.Name()), path.Join(name, e.Name())
		info, err := c.root.Lstat(at)
		if err != nil {
			return err
		}
		gone := isWhiteout(info)
		if slices.Contains(c.skip, e.Name()) && (gone || info.IsDir()) {
			continue
		}
		switch {
		case gone:
			err = c.add(p, driver.ChangeGone)
		case info.Mode().IsRegular():
			err = c.add(p, driver.ChangeFile)
		case !info.IsDir():
			err = c.add(p, driver.ChangeSpecial)
		default:
			if isOpaque(path.Join(c.up, at)) {
				err = c.add(p, driver.ChangeGone)
			}
			if err = errors.Join(err, c.add(p, driver.ChangeDir)); err == nil {
				err = c.look(ctx, at, p)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
