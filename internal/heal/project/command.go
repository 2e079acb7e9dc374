package project

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tend-run/tend/internal/heal/git"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// maxHidden bounds the paths that a command does not see.
const maxHidden = 2000

// Shown implements Project. It is found anew each time: a command before may have made things.
func (l *Local) Shown(context.Context) (r Shown, err error) {
	root := l.c.Root
	if l.c.StateDir != "" && inside(l.c.StateDir, root) {
		return r, fmt.Errorf("%w: the daemon's own directory is in the project", ErrNoCommands)
	}
	r.Show = l.shown()
	hide := func(full string) {
		if rel, err := filepath.Rel(root, full); err == nil {
			r.Hide = append(r.Hide, filepath.ToSlash(rel))
		}
	}
	err = filepath.WalkDir(root, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				return nil // it is gone, or nothing for the command either
			}
			return err
		}
		name := d.Name()
		switch {
		case full == root:
			return nil
		case name == ".git" && l.hidden(full):
			hide(full)
		case name == ".git":
			for _, one := range l.secretConfigs(full) {
				hide(one)
			}
		case d.IsDir() && name != ".tend" && slices.Contains(view.Dropped, name):
		case d.Type()&fs.ModeSymlink != 0: // what it leads to has a rule of its own
			return nil
		default:
			rel, err := filepath.Rel(root, full)
			if err != nil {
				return err
			}
			if _, err := l.guard.Check(filepath.ToSlash(rel), false); err == nil && (d.IsDir() || !guard.IsEnv(name)) {
				return nil
			}
			hide(full)
		}
		if len(r.Hide) > maxHidden {
			return fmt.Errorf("%w: more than %d files and directories are secret", ErrNoCommands, maxHidden)
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return r, err
}

// atHome reports whether the project is in a sandbox's own directory.
func (l *Local) atHome() bool {
	home, err := filepath.EvalSymlinks(l.c.Home)
	return l.c.Home != "" && err == nil && inside(l.c.Root, home)
}

// secretConfigs are the configurations below a directory of git that have a secret in them, such as
// a password in an address: its own, and those of submodules and work trees.
func (l *Local) secretConfigs(dir string) (all []string) {
	_ = filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		name := filepath.Base(full)
		switch {
		case err != nil:
			return fs.SkipDir // it is gone, or nothing for the command either
		case d.IsDir() && slices.Contains([]string{"objects", "refs", "logs", "hooks", "lfs"}, name):
			if _, err := os.Lstat(filepath.Join(filepath.Dir(full), "HEAD")); err == nil { // else it is a submodule of this name
				return fs.SkipDir
			}
		case !d.IsDir() && (name == "config" || name == "config.worktree") && l.holdsSecret(full):
			all = append(all, full)
		}
		return nil
	})
	return all
}

// holdsSecret reports whether a file, such as one with the addresses of a repository, has a
// secret in it, or cannot be read.
func (l *Local) holdsSecret(file string) bool {
	data, err := atomicfile.Read(file, MaxReviewed)
	return err != nil && !errors.Is(err, fs.ErrNotExist) || l.c.Redact.Text(string(data)) != string(data)
}

// shown is what a command needs of the machine besides programs and libraries: the repository and
// packages of the directories that the project is in.
func (l *Local) shown() (all []string) {
	root := l.c.Root
	for i, dir := range git.Dirs(root) {
		if i == 0 && l.hidden(dir) {
			break
		}
		if !inside(dir, root) && len(l.secretConfigs(dir)) == 0 {
			all = append(all, dir)
		}
	}
	for dir := filepath.Dir(root); dir != "/"; dir = filepath.Dir(dir) {
		for _, name := range []string{"node_modules", "package.json"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				all = append(all, filepath.Join(dir, name))
			}
		}
	}
	return all
}

// inside reports whether a path is another, or below it.
func inside(name, dir string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}
