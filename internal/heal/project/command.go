package project

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"

	"github.com/tend-run/tend/internal/heal/confine"
	"github.com/tend-run/tend/internal/heal/git"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// changesFile is what a command has changed, until that is taken over.
const changesFile = "changes"

// dropped are directories in which a command works for itself alone: git's and tend's own
// and what package managers install.
var dropped = []string{".git", ".tend", "node_modules", ".venv", "venv", "__pycache__", ".cache", ".pnpm-store"}

// Begin implements Project. The command runs under [confine], and so changes nothing by
// itself.
func (l *Local) Begin(ctx context.Context, line string) (c Command, err error) {
	if l.point == nil {
		return c, errors.New("there is no checkpoint")
	}
	if l.c.Self == "" && !l.c.Inside {
		return c, ErrNoCommands
	}
	rules, err := l.confinement()
	if err != nil {
		return c, err
	}
	if l.taking, err = l.begin(ctx); err != nil {
		return c, err
	}
	if l.c.Inside {
		return Command{Rules: &rules}, nil
	}
	if err := os.RemoveAll(rules.Changes); err != nil {
		return c, err
	}
	return Command{Argv: confine.Argv(l.c.Self, rules, CommandLine(line))}, nil
}

// CommandLine is the command that a line of a model is.
func CommandLine(line string) []string { return []string{"/bin/sh", "-c", line} }

// End implements Project. Each file is taken over under the rules of an edit and those of
// taking, which never lose what nobody has committed.
func (l *Local) End(ctx context.Context, encoded []byte) (out Taken, err error) {
	t := l.taking
	if l.taking = nil; t == nil {
		return out, errors.New("no command has begun")
	}
	if !l.c.Inside {
		file := filepath.Join(l.dir(), changesFile)
		defer os.Remove(file)
		if encoded, err = confine.Encoded(file); err != nil {
			return out, err
		}
	}
	changes, err := confine.Decode(encoded)
	var over *confine.OverError
	switch {
	case errors.Is(err, confine.ErrKilled) || errors.As(err, &over):
		t.say("nothing of what it has changed was taken over: %v", err)
	case err != nil:
		return out, err
	case len(changes) > 0:
		if err := t.take(ctx, changes); err != nil {
			return out, err
		}
	}
	return Taken{Said: t.said(), Changed: t.taken}, nil
}

// confinement is what there is for a command, found anew each time: one before may have
// made things.
func (l *Local) confinement() (r confine.Rules, err error) {
	root := l.c.Root
	r = confine.Rules{Root: root, Changes: filepath.Join(l.dir(), changesFile), Drop: dropped, Hide: slices.Clone(l.c.Hide)}
	if l.c.StateDir != "" && inside(root, l.c.StateDir) {
		if !l.atHome() || confine.Public(l.c.StateDir) {
			return r, fmt.Errorf("%w: the project is in the daemon's own directory", ErrNoCommands)
		}
		// Nothing of it is there for a command but the project.
		r.Hide = slices.DeleteFunc(r.Hide, func(path string) bool { return inside(root, path) })
	}
	r.Show = l.shown()
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
			r.Hide = append(r.Hide, full)
		case name == ".git":
			r.Hide = append(r.Hide, l.secretConfigs(full)...)
		case d.IsDir() && name != ".tend" && slices.Contains(dropped, name):
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
			r.Hide = append(r.Hide, full)
		}
		if len(r.Hide) > confine.MaxPaths/2 {
			return fmt.Errorf("%w: more than %d files and directories are secret", ErrNoCommands, confine.MaxPaths/2)
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

// shown is what a command needs of the machine besides programs and libraries: those of
// PATH that are elsewhere, and the repository and packages of the directories that the
// project is in.
func (l *Local) shown() (all []string) {
	root := l.c.Root
	home := root
	if u, err := user.Current(); err == nil {
		home = u.HomeDir
	}
	add := func(path string) {
		if path != "/" && !inside(path, root) && !inside(root, path) && !(l.c.StateDir != "" && (inside(l.c.StateDir, path) ||
			inside(path, l.c.StateDir))) && !inside(home, path) && !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	for _, dir := range filepath.SplitList(l.c.Path) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || !filepath.IsAbs(dir) {
			continue
		}
		add(filepath.Clean(dir))
		add(real)
		// What is installed as a whole, such as a version of Node, has its libraries beside. A
		// directory that a person keeps things in is none.
		up := filepath.Dir(real)
		if _, err := os.Lstat(filepath.Join(up, "lib")); err == nil && filepath.Base(real) == "bin" && filepath.Base(up) != ".local" {
			add(up)
		}
	}
	for i, dir := range git.Dirs(root) {
		if i == 0 && l.hidden(dir) {
			break
		}
		if len(l.secretConfigs(dir)) == 0 {
			add(dir)
		}
	}
	for dir := filepath.Dir(root); dir != "/"; dir = filepath.Dir(dir) {
		add(filepath.Join(dir, "node_modules"))
		add(filepath.Join(dir, "package.json"))
	}
	return all
}

// inside reports whether a path is another, or below it.
func inside(name, dir string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}
