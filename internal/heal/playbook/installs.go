package playbook

import (
	"net"
	"path"
	"regexp"
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

// Files that name addresses from which packages are fetched, with what stands before one.
var (
	lockAddress = map[string]string{
		"package-lock.json": `"resolved": "`, "npm-shrinkwrap.json": `"resolved": "`, "yarn.lock": `^  resolved "`, "pnpm-lock.yaml": `tarball: `,
		"bun.lock": `"`, "uv.lock": `(?:registry|url) = "`, "poetry.lock": `url = "`, "Pipfile.lock": `"url": "`, "Pipfile": `url = "`,
		"pyproject.toml": `url = "`,
	}
	settings = []string{".npmrc", ".yarnrc", ".yarnrc.yml", "bunfig.toml", "uv.toml", "pip.conf", "pyproject.toml", "Pipfile"}
)

// maxHosts bounds the addresses of an install.
const maxHosts = 64

// Hosts are the addresses, as HOST:PORT, from which a package manager fetches by a file: its lock
// file or list, or its settings, in which each address is one.
func Hosts(name string, text []byte) (all []string) {
	before, known := lockAddress[path.Base(name)]
	if !known {
		before = `^[^#;\n]*?`
	}
	re := regexp.MustCompile(`(?m)` + before + `(?:git\+)?(https?)://(?:[^/\s"'@]*@)?(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(?::(\d{1,5}))?`)
	for _, m := range re.FindAllSubmatch(text, -1) {
		port := string(m[3])
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[string(m[1])]
		}
		at := net.JoinHostPort(strings.Trim(string(m[2]), "[]"), port)
		if !slices.Contains(all, at) && len(all) < maxHosts {
			all = append(all, at)
		}
	}
	return all
}

// Registries are the addresses from which packages are fetched if nothing is said.
func Registries(makes string) []string {
	if path.Base(makes) == "node_modules" {
		return []string{"registry.npmjs.org:443", "registry.yarnpkg.com:443", "nodejs.org:443"}
	}
	return []string{"pypi.org:443", "files.pythonhosted.org:443"}
}

// hosts are the addresses that a lock file names, and the settings in its directory.
func (p *project) hosts(dir, lock string) (all []string) {
	files := []string{lock}
	for _, name := range settings {
		files = append(files, path.Join(dir, name))
	}
	for _, file := range files {
		if text, ok := p.read(file); ok {
			all = append(all, Hosts(file, text)...)
		}
	}
	return slices.Compact(all)
}
