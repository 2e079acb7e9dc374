package project

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
)

// asideOf is where directories are moved to by a remedy: below the project, so that a
// rename does it. It is a path in the project's directory, which is opened for each use: by
// no link does anything leave it.
func (l *Local) asideOf(try int) string {
	return filepath.Join(".tend", "aside", fmt.Sprintf("%s-%d", l.c.ID, try))
}

// MoveAside moves a directory of the project away. Its name there is its path.
func (l *Local) MoveAside(_ context.Context, try int, rel string) error {
	rel = filepath.FromSlash(rel)
	if !filepath.IsLocal(rel) || rel == "." {
		return fmt.Errorf("%q is no directory of the project", rel)
	}
	root, err := os.OpenRoot(l.c.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := real(root, rel); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	to := filepath.Join(l.asideOf(try), url.PathEscape(filepath.ToSlash(rel)))
	if _, err := root.Lstat(to); err == nil {
		return nil // the first one is what was there before
	}
	if err := root.MkdirAll(l.asideOf(try), 0o700); err != nil {
		return err
	}
	return root.Rename(rel, to)
}

// moveBack brings back what a remedy has moved aside. What is in the way is what the remedy
// has made, but a directory in which something else is now, such as a link, is an error.
func (l *Local) moveBack(try int) error {
	root, err := os.OpenRoot(l.c.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), filepath.ToSlash(l.asideOf(try)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		rel, err := url.PathUnescape(e.Name())
		if err != nil || !filepath.IsLocal(rel) || rel == "." {
			continue // none of ours
		}
		to := filepath.FromSlash(rel)
		if err := real(root, filepath.Dir(to)); err != nil {
			return fmt.Errorf("what was moved aside cannot be moved back to %s: %w", rel, err)
		}
		if err := root.RemoveAll(to); err != nil {
			return err
		}
		if err := root.Rename(filepath.Join(l.asideOf(try), e.Name()), to); err != nil {
			return err
		}
	}
	l.dropAside(try)
	return nil
}

// dropAside removes what was moved aside, and the directories for it if they are empty.
func (l *Local) dropAside(try int) {
	root, err := os.OpenRoot(l.c.Root)
	if err != nil {
		return
	}
	defer root.Close()
	aside := l.asideOf(try)
	if _, err := root.Lstat(filepath.Dir(aside)); err != nil {
		return
	}
	_ = root.RemoveAll(aside)
	_ = root.Remove(filepath.Dir(aside)) // unless there is more
	_ = root.Remove(filepath.Dir(filepath.Dir(aside)))
}

// real says why a path is no directory in directories, without any link.
func real(root *os.Root, rel string) error {
	for ; rel != "."; rel = filepath.Dir(rel) {
		info, err := root.Lstat(rel)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%s is no directory of its own", rel)
		}
	}
	return nil
}
