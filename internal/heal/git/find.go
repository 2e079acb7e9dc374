package git

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/owner"
)

// place is where a repository is.
type place struct {
	top    string // the directory that has .git
	entry  string // its .git
	dir    string // what that is, or names
	common string // what linked work trees share; dir, if there is none
}

// ErrNone says that there is no repository.
var ErrNone = errors.New("it is in no git repository")

// find finds the nearest repository, as git does: in the same filesystem, and not where .git
// only pretends to be one.
func find(root string) (p place, err error) {
	device, err := deviceOf(root)
	if err != nil {
		return p, err
	}
	for dir := root; ; dir = filepath.Dir(dir) {
		if on, err := deviceOf(dir); err != nil || on != device {
			return p, ErrNone
		}
		entry := filepath.Join(dir, ".git")
		if info, err := os.Stat(entry); err == nil {
			p = place{top: dir, entry: entry, dir: entry}
			if info.Mode().IsRegular() {
				if p.dir = named(entry, "gitdir: "); p.dir == "" {
					return p, fmt.Errorf("%s names no git repository", entry)
				}
			}
			if p.common = named(filepath.Join(p.dir, "commondir"), ""); p.common == "" {
				p.common = p.dir
			}
			if isRepository(p) {
				return p, nil
			}
			if info.Mode().IsRegular() {
				return p, fmt.Errorf("%s names %s, which is no git repository", entry, p.dir)
			}
		}
		if dir == filepath.Dir(dir) {
			return p, ErrNone
		}
	}
}

func isRepository(p place) bool {
	for _, path := range []string{filepath.Join(p.dir, "HEAD"), filepath.Join(p.common, "objects")} {
		if _, err := os.Lstat(path); err != nil {
			return false
		}
	}
	return true
}

// named is the directory that a file of git names; "": it names none.
func named(file, prefix string) string {
	data, err := atomicfile.Read(file, 4096)
	if err != nil {
		return ""
	}
	path, ok := strings.CutPrefix(strings.TrimSpace(string(data)), prefix)
	if !ok || path == "" {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(file), path)
	}
	return filepath.Clean(path)
}

// ownerOf finds the user with whose rights git is run on a repository of a project.
func (p place) ownerOf(root string) (uid int, err error) {
	if uid, err = owner.Of(p.dir); err != nil {
		return 0, err
	}
	if self := os.Geteuid(); uid != self {
		of, err := owner.Of(root)
		if err != nil {
			return 0, err
		}
		if self != 0 || of != uid {
			return 0, fmt.Errorf("the git repository %s belongs to uid %d, and the project to uid %d: git is run by the owner of both alone",
				p.dir, uid, of)
		}
	}
	if top, err := owner.Of(p.top); err != nil || top != uid && top != 0 {
		return 0, errors.Join(err, fmt.Errorf("the git repository %s belongs to uid %d, and its work tree %s to uid %d", p.dir, uid, p.top, top))
	}
	// What git reads first, and obeys.
	files := []string{p.entry, p.dir, p.common}
	for _, dir := range []string{p.dir, p.common} {
		for _, name := range []string{"commondir", "config", "config.worktree", "HEAD", "index", "objects", "info"} {
			files = append(files, filepath.Join(dir, name))
		}
	}
	if err := owner.CheckAll(uid, files...); err != nil {
		return 0, fmt.Errorf("its git repository is not used: %w", err)
	}
	return uid, nil
}

// Dirs are the directories and files of git that a project needs, such as for a command that
// sees nothing else; none, if there is no repository that may be used.
func Dirs(root string) []string {
	p, err := find(root)
	if err != nil {
		return nil
	}
	if _, err := p.ownerOf(root); err != nil {
		return nil
	}
	all := []string{p.entry}
	if p.dir != p.entry {
		all = append(all, p.dir)
	}
	if p.common != p.dir {
		all = append(all, p.common)
	}
	return all
}
