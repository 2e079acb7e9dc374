package playbook

import (
	"encoding/json"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// lock is a lock file of a package manager of Node.
type lock struct {
	manager string // npm, pnpm, yarn, berry, bun
	file    string // below the root
	dir     string
	text    []byte
	npm     *npmLock // of npm alone
}

// npmLock is what is read of a package-lock.json.
type npmLock struct {
	Version  int                 `json:"lockfileVersion"`
	Packages map[string]npmEntry `json:"packages"`
	// Dependencies is what version 1 has in place of Packages.
	Dependencies map[string]npmEntry `json:"dependencies"`
}

type npmEntry struct {
	Version   string          `json:"version"`
	Resolved  string          `json:"resolved"`
	Integrity string          `json:"integrity"`
	Dev       bool            `json:"dev"`
	Link      bool            `json:"link"`
	Bin       json.RawMessage `json:"bin"`
	// Scripts: programs of the package run at its install, and may replace its files.
	Scripts bool `json:"hasInstallScript"`
}

var lockFiles = map[string]string{
	"npm-shrinkwrap.json": "npm", "package-lock.json": "npm", "pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun",
	"bun.lockb": "bun",
}

// lock returns the lock file that the service's packages are of: in its directory or the
// nearest one above. If there are several, the manager decides that package.json names,
// that the command is, or whose node_modules it is; nil if none of that tells.
func (p *project) lock() *lock {
	dir, _ := p.findUp(p.dir, "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb")
	if dir == "" {
		return nil
	}
	by := map[string]string{}
	for file, manager := range lockFiles {
		if p.isFile(path.Join(dir, file)) {
			by[manager] = file
		}
	}
	manager := ""
	if len(by) == 1 {
		for manager = range by {
		}
	} else {
		m, _ := p.manifest(dir)
		named, _, _ := strings.Cut(m.PackageManager, "@")
		for _, guess := range append([]string{named}, p.managersAtWork(dir)...) {
			if by[guess] != "" {
				manager = guess
				break
			}
		}
	}
	if manager == "" {
		return nil
	}
	l := &lock{manager: manager, file: path.Join(dir, by[manager]), dir: dir}
	var ok bool
	if l.text, ok = p.read(l.file); !ok || !p.unlinked(l.file) {
		return nil
	}
	switch {
	case manager == "npm":
		l.npm = &npmLock{}
		if json.Unmarshal(l.text, l.npm) != nil {
			return nil
		}
	case manager == "yarn" && strings.Contains(string(l.text[:min(len(l.text), 2000)]), "__metadata:"):
		l.manager = "berry"
	}
	return l
}

// managersAtWork are those that the command of the service, and what is in node_modules,
// tell of.
func (p *project) managersAtWork(dir string) (all []string) {
	for _, word := range p.words() {
		switch base := path.Base(word); base {
		case "npm", "pnpm", "yarn", "bun":
			all = append(all, base)
		case "npx":
			all = append(all, "npm")
		case "bunx":
			all = append(all, "bun")
		}
	}
	for _, mark := range [][2]string{{".package-lock.json", "npm"}, {".modules.yaml", "pnpm"}, {".yarn-integrity", "yarn"},
		{".yarn-state.yml", "yarn"}} {
		if p.isFile(path.Join(dir, "node_modules", mark[0])) {
			all = append(all, mark[1])
		}
	}
	return all
}

// words are those of the command of the service; of a line, each.
func (p *project) words() []string {
	if len(p.Argv) >= 3 && (p.Argv[0] == "/bin/sh" || p.Argv[0] == "sh" || p.Argv[0] == "bash") && p.Argv[1] == "-c" {
		return strings.Fields(p.Argv[2])
	}
	return p.Argv
}

// holds reports whether the lock file has a package of this name.
func (l *lock) holds(p *project, name string) bool {
	if l.npm != nil {
		for key, e := range l.npm.Packages {
			if key != "node_modules/"+name && !strings.HasSuffix(key, "/node_modules/"+name) {
				continue
			}
			// A link leads to a package of the same repository, as in a workspace.
			if !e.Link || filepath.IsLocal(e.Resolved) && p.isFile(path.Join(l.dir, e.Resolved, "package.json")) {
				return true
			}
		}
		_, ok := l.npm.Dependencies[name]
		return ok
	}
	quoted := regexp.QuoteMeta(name)
	form := map[string]string{
		"yarn":  `(?m)^(?:.*, )?"?` + quoted + `@`,
		"berry": `(?m)^"(?:.*, )?` + quoted + `@`,
		"pnpm":  `(?m)^ +['"]?/?` + quoted + `(?:@[^:\n]+|/[0-9][^:\n]*)?['"]?:`,
		"bun":   `(?:^|[^\w@/.-])` + quoted + `(?:[^\w/.-]|@\d|$)`,
	}[l.manager]
	return regexp.MustCompile(form).Match(l.text)
}

// hasProgram reports whether a package of the lock file brings a program.
func (l *lock) hasProgram(p *project, name string) bool {
	if l.npm == nil {
		// Other lock files do not say; most programs have the name of their package.
		return l.holds(p, name) || name == "tsc" && l.holds(p, "typescript")
	}
	for key, e := range l.npm.Packages {
		var many map[string]string
		if len(e.Bin) == 0 || json.Unmarshal(e.Bin, &many) != nil {
			continue
		}
		if _, ok := many[name]; ok && strings.Contains(key, "node_modules/") {
			return true
		}
	}
	return l.npm.Version < 2 && l.holds(p, name)
}

// local reports whether all packages are files of the project.
func (l *lock) local() bool {
	if l.npm == nil || len(l.npm.Packages) == 0 {
		return false
	}
	for key, e := range l.npm.Packages {
		if strings.Contains(key, "node_modules/") && !e.Link && !strings.HasPrefix(e.Resolved, "file:") {
			return false
		}
	}
	return true
}

// install is a clean install of what the lock file says.
func (l *lock) install(p *project, why string) []finding {
	modules := path.Join(l.dir, "node_modules")
	if p.exists(modules) && (!p.unlinked(modules) || p.git.tracks(modules)) {
		return nil // a link, or a part of the project: not ours to make again
	}
	var argv []string
	switch l.manager {
	case "npm":
		argv = []string{"npm", "ci", "--no-audit", "--no-fund", "--prefer-offline"}
		if l.local() {
			argv[4] = "--offline"
		}
	case "pnpm":
		argv = []string{"pnpm", "install", "--frozen-lockfile", "--prefer-offline"}
	case "yarn":
		argv = []string{"yarn", "install", "--frozen-lockfile", "--non-interactive", "--prefer-offline"}
		if rc, ok := p.read(path.Join(l.dir, ".yarnrc")); ok && strings.Contains(string(rc), "yarn-offline-mirror ") {
			argv[4] = "--offline"
		}
	case "berry":
		argv = []string{"yarn", "install", "--immutable"}
		if p.isFile(path.Join(l.dir, ".pnp.cjs")) { // all over the project: no program of a package runs for it
			argv = append(argv, "--mode=skip-build")
			return []finding{{why: why, actions: []Action{{Kind: Run, Argv: argv, Path: p.dirPath(l.dir),
				Reason: "install what " + l.file + " says"}}, strong: true}}
		}
	case "bun":
		argv = []string{"bun", "install", "--frozen-lockfile"}
	}
	a := Action{Kind: Run, Argv: argv, Path: p.dirPath(l.dir), Aside: []string{modules}, Reason: "install what " + l.file + " says",
		Makes: modules, Hosts: p.hosts(l.dir, l.file)}
	return []finding{{why: why, actions: []Action{a}, strong: true}}
}
