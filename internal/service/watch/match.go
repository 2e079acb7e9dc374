package watch

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/tend-run/tend/internal/service/config"
)

// never are names that do not count, wherever they are: of directories and files that
// tools make, and of what editors make for a moment.
var never = []string{".git", ".hg", ".svn", "node_modules", "__pycache__", "*.log", "*~", ".*.sw?", ".#*", "4913",
	".DS_Store", "*.tmp.[0-9]*"}

// matcher knows which paths count. Paths are relative, with slashes.
type matcher struct{ paths, ignore []string }

// covers reports whether a glob names a path, or a directory that it is in.
func covers(glob, name string) bool {
	for ; name != "." && name != "/"; name = path.Dir(name) {
		if ok, _ := doublestar.Match(glob, name); ok {
			return true
		}
	}
	return false
}

// ignored reports whether a path and all below it do not count.
func (m *matcher) ignored(name string) bool {
	for _, glob := range m.ignore {
		if covers(glob, name) {
			return true
		}
	}
	for ; name != "." && name != "/"; name = path.Dir(name) {
		for _, glob := range never {
			if ok, _ := path.Match(glob, path.Base(name)); ok {
				return true
			}
		}
	}
	return false
}

// counts reports whether a change of a path counts.
func (m *matcher) counts(name string) bool {
	return !m.ignored(name) && slices.ContainsFunc(m.paths, func(glob string) bool { return covers(glob, name) })
}

// mayHold reports whether there may be something below a directory that counts. "." is
// the first one.
func (m *matcher) mayHold(dir string) bool {
	if dir == "." {
		return true
	}
	return !m.ignored(dir) && slices.ContainsFunc(m.paths, func(glob string) bool { return leadsTo(glob, dir) })
}

// leadsTo reports whether a glob may name something below a directory.
func leadsTo(glob, dir string) bool {
	parts := strings.Split(path.Clean(glob), "/")
	for i, name := range strings.Split(dir, "/") {
		if i == len(parts) || parts[i] == "**" {
			return true // the glob has named a directory around, or any
		}
		if strings.ContainsAny(parts[i], "{}") && !(strings.Count(parts[i], "{") == strings.Count(parts[i], "}")) {
			return true // a choice with slashes in it
		}
		if ok, _ := doublestar.Match(parts[i], name); !ok {
			return false
		}
	}
	return true
}

// Counts reports whether a change of a path, relative to the directory that is watched,
// counts by the rules.
func Counts(rules *config.Watch, name string) bool {
	m := matcher{rules.Paths, rules.Ignore}
	return m.counts(filepath.ToSlash(name))
}
