package project

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/heal/git"
	"github.com/tend-run/tend/internal/lib/exchange"
)

// asideOf is where directories are moved to by a remedy: below the project, so that a
// rename does it. It is a path in the project's directory, which is opened for each use: by
// no link does anything leave it.
func (l *Local) asideOf(try int) string { return asideOf(l.c.ID, try) }

func asideOf(id string, try int) string {
	return filepath.Join(".tend", "aside", fmt.Sprintf("%s-%d", id, try))
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

// In what is aside, stagedName has what an install in a view has made, and homeName its home. The name of a
// directory that is exchanged for one of the project begins with swapPrefix there, as the escape of no path
// does; then it has its number, and the escape of that path. One that was made has the file newMark in it
// until it is in the project, and again before it is taken out: without the mark it is what was before.
const (
	stagedName = "swap%-new"
	homeName   = "swap%-home"
	swapPrefix = "swap%-"
	newMark    = ".tend-new"
)

// Staged are the directories of Stage of a remedy of an episode.
func Staged(root, id string, try int) (out, home string) {
	at := filepath.Join(root, asideOf(id, try))
	return filepath.Join(at, stagedName), filepath.Join(at, homeName)
}

// Stage implements Project.
func (l *Local) Stage(_ context.Context, try int) error {
	root, err := os.OpenRoot(l.c.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range []string{stagedName, homeName} {
		dir := filepath.Join(l.asideOf(try), name)
		if err := errors.Join(root.RemoveAll(dir), root.MkdirAll(dir, 0o700), real(root, dir)); err != nil {
			return err
		}
	}
	return nil
}

// Swap implements Project.
func (l *Local) Swap(ctx context.Context, try int, rel string) error {
	rel = filepath.FromSlash(rel)
	if !filepath.IsLocal(rel) || rel == "." {
		return fmt.Errorf("%q is no directory of the project", rel)
	}
	root, err := os.OpenRoot(l.c.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	if r, err := git.Open(ctx, l.c.Root); err == nil { // else there is none that may be asked
		if out, err := r.CommandIn(ctx, l.c.Root, nil, "ls-files", "-z", "--", rel).Output(); err != nil || len(out) > 0 {
			return fmt.Errorf("git tracks files in %s, and no install makes them: %w", rel, errors.Join(err, fs.ErrExist))
		}
	}
	name := url.PathEscape(filepath.ToSlash(rel))
	from := filepath.Join(l.asideOf(try), stagedName, name)
	if err := errors.Join(plain(root, from), real(root, filepath.Dir(rel))); err != nil {
		return err
	}
	if err := root.Mkdir(rel, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := real(root, rel); err != nil {
		return err
	}
	others, err := fs.ReadDir(root.FS(), filepath.ToSlash(l.asideOf(try)))
	if err != nil {
		return err
	}
	at := filepath.Join(l.asideOf(try), fmt.Sprintf("%s%06d-%s", swapPrefix, len(others), name))
	if err := errors.Join(mark(root, from), root.Rename(from, at)); err != nil {
		return err
	}
	err = exchange.Dirs(root, at, rel)
	if errors.Is(err, errors.ErrUnsupported) {
		err = errors.Join(l.MoveAside(ctx, try, filepath.ToSlash(rel)), root.RemoveAll(rel), root.Rename(at, rel))
	}
	if err == nil {
		err = root.Remove(filepath.Join(rel, newMark))
	}
	return err
}

// mark says of a directory that it was made. Programs may have put anything there.
func mark(root *os.Root, dir string) error {
	name := filepath.Join(dir, newMark)
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// plain has a tree that programs of packages have made be nothing but files, directories and links, and no
// file with rights of its own.
func plain(root *os.Root, dir string) error {
	if err := real(root, dir); err != nil {
		return err
	}
	return fs.WalkDir(root.FS(), filepath.ToSlash(dir), func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.Type().IsRegular():
			return root.Lchown(filepath.FromSlash(name), -1, -1) // the kernel drops them
		case e.IsDir() || e.Type() == fs.ModeSymlink:
			return nil
		}
		return fmt.Errorf("an install has made %s, which is neither a file, a directory nor a link", path.Base(name))
	})
}

// swapBack takes back an exchange, if there was one.
func swapBack(root *os.Root, aside, name string) error {
	_, escaped, _ := strings.Cut(strings.TrimPrefix(name, swapPrefix), "-")
	rel, err := url.PathUnescape(escaped)
	at := filepath.Join(aside, name)
	if _, merr := root.Lstat(filepath.Join(at, newMark)); merr == nil || err != nil || !filepath.IsLocal(rel) || rel == "." {
		return nil
	}
	to := filepath.FromSlash(rel)
	if err := real(root, filepath.Dir(to)); err != nil {
		return fmt.Errorf("what was before an install cannot be moved back to %s: %w", rel, err)
	}
	if real(root, to) == nil {
		err = errors.Join(mark(root, to), exchange.Dirs(root, at, to))
	} else {
		err = errors.Join(root.RemoveAll(to), root.Rename(at, to))
	}
	if err == nil {
		_ = root.Remove(to) // there was none; one that is not empty stays
	}
	return err
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
	swaps := func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), swapPrefix) }
	for _, e := range slices.DeleteFunc(slices.Clone(entries), swaps) {
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
	for _, e := range slices.Backward(entries) { // the last exchange first
		if swaps(e) {
			if err := swapBack(root, l.asideOf(try), e.Name()); err != nil {
				return err
			}
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
	gone := aside + "-gone" // of what is removed by half nobody can say what it was
	_ = root.RemoveAll(gone)
	_ = root.Rename(aside, gone)
	_ = root.RemoveAll(gone)
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
