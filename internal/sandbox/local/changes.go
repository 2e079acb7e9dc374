package local

import (
	"context"
	"errors"
	"fmt"
	"io"
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
		if vanished(err) || err == nil && !st.IsDir() {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	err = c.look(ctx, at, "")
	return c.all, err
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
		return c.tooMany()
	}
	c.all = append(c.all, driver.FileChange{Path: name, Kind: kind})
	return nil
}

func (c *differ) tooMany() error {
	return fmt.Errorf("more than %d files and directories have changed: %w", c.most, driver.ErrLimit)
}

func vanished(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// look adds what has changed in a directory; name is that as it is told.
func (c *differ) look(ctx context.Context, dir, name string) error {
	// Programs go on inside: what was a directory may be gone, or a FIFO that nobody writes to.
	f, err := c.root.OpenFile(path.Join(".", dir), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if vanished(err) {
		return nil
	}
	if err != nil {
		return err
	}
	room := c.most - len(c.all) + len(c.skip) // more of them cannot be told
	entries, err := f.ReadDir(room + 1)
	if errors.Is(err, io.EOF) || vanished(err) {
		err = nil
	}
	if err = errors.Join(err, f.Close(), ctx.Err()); err != nil {
		return err
	}
	if len(entries) > room {
		return c.tooMany()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int {
		if a.Name() < b.Name() {
			return -1
		}
		return 1
	})
	for _, e := range entries {
		at, p := path.Join(dir, e.Name()), path.Join(name, e.Name())
		if len(at) > driver.MaxPath {
			return fmt.Errorf("%.80q… has more than %d bytes, and has changed: %w", at, driver.MaxPath, driver.ErrLimit)
		}
		info, err := c.root.Lstat(at)
		if vanished(err) {
			continue
		}
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
