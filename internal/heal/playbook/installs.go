package playbook

import (
	"path"
	"slices"
	"strings"
)

// Manifest reports whether a path, with slashes, is that of a manifest or a lock file that
// a book of this package uses.
func Manifest(name string) bool {
	base := path.Base(name)
	switch base {
	case "package.json", "pyproject.toml", "uv.lock", "poetry.lock", "Pipfile", "Pipfile.lock", "go.mod", "go.sum":
		return true
	}
	return lockFiles[base] != "" || strings.HasPrefix(base, "requirements") && path.Ext(base) == ".txt"
}

// Installs reports whether the plan lets a package manager install missing packages by the
// lock file: it runs a command, and its cause was seen in the files, which only the rules
// of this package do.
func (p Plan) Installs() bool {
	return p.Strong && slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Kind == Run })
}
