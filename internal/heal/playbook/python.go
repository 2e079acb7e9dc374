package playbook

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/csv"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

//go:embed distributions.yaml
var distributionsText []byte

// distributions are the names under which modules are published, where they differ.
var distributions = sync.OnceValue(func() map[string]string {
	var m map[string]string
	if err := yaml.Unmarshal(distributionsText, &m); err != nil {
		panic(err) // it is a part of the program
	}
	return m
})

var (
	moduleForm = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	separators = lazyregexp.New(`[-_.]+`)
	wantForm   = lazyregexp.New(`^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*(?:[=<>!~;@ #]|$)`)
)

// pep503 is the one spelling of the name of a distribution.
func pep503(name string) string { return strings.ToLower(separators.ReplaceAllString(name, "-")) }

// venv is a virtual environment below the root, in which the service runs.
type venv struct {
	dir  string // below the root
	site string // its site-packages
}

// venv returns the virtual environment that the command, the environment or the frames
// of the report are of; nil: none, and nothing is ever installed outside of one.
func (p *project) venv() *venv {
	var places []string
	for _, word := range p.words() {
		if at := strings.Index(word, "/bin/"); at > 0 {
			places = append(places, word[:at])
		}
	}
	places = append(places, p.Env["VIRTUAL_ENV"])
	first, _, _ := strings.Cut(p.Env["PATH"], ":")
	places = append(places, strings.TrimSuffix(first, "/bin"))
	for _, f := range p.frames() {
		if at := strings.Index(f.file, "/lib/python3"); at > 0 {
			places = append(places, f.file[:at])
		}
	}
	if m := regexp.MustCompile(`(?m)(?:^|\s)(\S+)/bin/python[0-9.]*: `).FindStringSubmatch(p.report); m != nil {
		places = append(places, m[1])
	}
	if words := p.words(); len(words) > 0 && (path.Base(words[0]) == "uv" || path.Base(words[0]) == "poetry" ||
		path.Base(words[0]) == "pipenv" || path.Base(words[0]) == "pdm") {
		for _, d := range up(p.dir) {
			places = append(places, path.Join(p.Root, d, ".venv"))
		}
	}
	for _, place := range places {
		rel, ok := p.below(place, p.dir)
		if !ok || !p.unlinked(rel) || !p.isFile(path.Join(rel, "pyvenv.cfg")) || p.git.tracks(rel) {
			continue
		}
		libs, _ := fs.Glob(p.root.FS(), path.Join(rel, "lib/python3*/site-packages"))
		if len(libs) == 1 {
			return &venv{rel, libs[0]}
		}
	}
	return nil
}

// wants are what says which distributions a project has.
type wants struct {
	file string // below the root
	tool string // uv, poetry, pipenv, pip
	// names as pep503 has them, and the versions of those that have one alone
	names    map[string]bool
	versions map[string]string
}

// add adds a distribution. Of two versions, for two platforms, none is known.
func (w *wants) add(name, version string) {
	name = pep503(name)
	if was, ok := w.versions[name]; ok && was != version {
		version = ""
	}
	w.names[name], w.versions[name] = true, version
}

var (
	lockName    = lazyregexp.New(`(?m)^name = "([^"\n]+)"(?:\nversion = "([^"\n]+)")?`)
	pipfileName = lazyregexp.New(`(?m)^\s+"([A-Za-z0-9][A-Za-z0-9._-]*)": \{(?:[^{}]*"version": "==([^"]+)")?`)
	wantExactly = lazyregexp.New(`^\s*[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[[^\]]*\])?\s*===?\s*([A-Za-z0-9.+!_-]+)\s*(?:[;#\\].*)?$`)
)

// wants returns the nearest lock file, or list of requirements.
func (p *project) wants() *wants {
	for _, dir := range up(p.dir) {
		for _, c := range []struct{ file, tool string }{{"uv.lock", "uv"}, {"poetry.lock", "poetry"}, {"Pipfile.lock", "pipenv"},
			{"requirements.txt", "pip"}} {
			file := path.Join(dir, c.file)
			text, ok := p.read(file)
			if !ok || !p.unlinked(file) {
				continue
			}
			w := &wants{file, c.tool, map[string]bool{}, map[string]string{}}
			switch c.tool {
			case "pip":
				p.requirements(w, dir, text, 0)
			case "pipenv":
				for _, m := range pipfileName.FindAllSubmatch(text, -1) {
					w.add(string(m[1]), string(m[2]))
				}
			default:
				for _, m := range lockName.FindAllSubmatch(text, -1) {
					w.add(string(m[1]), string(m[2]))
				}
			}
			return w
		}
	}
	return nil
}

// requirements reads a list, and those that it names with -r.
func (p *project) requirements(w *wants, dir string, text []byte, depth int) {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if rest, ok := strings.CutPrefix(line, "-r "); ok && depth < 5 {
			if rel, ok := p.below(strings.TrimSpace(rest), dir); ok {
				if more, ok := p.read(rel); ok {
					p.requirements(w, path.Dir(rel), more, depth+1)
				}
			}
		}
		if m := wantForm.FindStringSubmatch(line); m != nil {
			version := ""
			if v := wantExactly.FindStringSubmatch(line); v != nil && !strings.Contains(line, ";") { // else for some machines
				version = v[1]
			}
			w.add(m[1], version)
		}
	}
}

// distribution is the wanted one that a module is of; "": none.
func (w *wants) distribution(module string) string {
	parts := strings.Split(module, ".")
	for n := len(parts); n > 0; n-- {
		name := strings.Join(parts[:n], ".")
		for _, guess := range strings.Split(distributions()[name], " ") {
			if guess != "" && w.names[pep503(guess)] {
				return pep503(guess)
			}
		}
		if w.names[pep503(name)] {
			return pep503(name)
		}
	}
	return ""
}

// install is an install of what the list says; of one distribution anew, if its files are
// damaged.
func (w *wants) install(p *project, env *venv, anew string) []Action {
	dir := path.Dir(w.file)
	var argv []string
	switch w.tool {
	case "uv":
		if env.dir != path.Join(dir, ".venv") {
			return nil // uv would make another one
		}
		if argv = []string{"uv", "sync", "--frozen", "--inexact"}; anew != "" {
			argv = append(argv, "--reinstall-package", anew)
		}
	case "poetry":
		if anew != "" {
			return nil // it has no word for that
		}
		argv = []string{"poetry", "install", "--no-interaction"}
	case "pipenv":
		if anew != "" {
			return nil
		}
		argv = []string{"pipenv", "sync"}
	case "pip":
		argv = []string{path.Join(p.Root, env.dir, "bin/python"), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"}
		if anew != "" {
			argv = append(argv, "--force-reinstall", "--no-deps")
		}
		argv = append(argv, "-r", path.Base(w.file))
	}
	return []Action{{Kind: Run, Argv: argv, Path: p.dirPath(dir), Reason: "install what " + w.file + " says", Makes: env.dir,
		Hosts: p.hosts(dir, w.file)}}
}

// pythonPackage: what is imported is a distribution that is wanted, and it is not in the
// virtual environment.
func pythonPackage(p *project, groups map[string]string) []finding {
	module := groups["module"]
	if !moduleForm.MatchString(module) {
		return nil
	}
	top, _, _ := strings.Cut(module, ".")
	w, env := p.wants(), p.venv()
	if w == nil || env == nil || p.ownModule(top) {
		return nil
	}
	name := w.distribution(module)
	if name == "" {
		return nil
	}
	files, record := p.record(env, name)
	if record && len(files) > 0 && !p.recordDiffers(env, files) {
		return nil // it is there, whole: the module is of something else
	}
	anew := ""
	if record {
		anew = name // pip believes that it is installed
	}
	actions := w.install(p, env, anew)
	if actions == nil {
		return nil
	}
	return []finding{{why: "the module " + module + " is of " + name + " in " + w.file + ", which is not installed in " + env.dir,
		actions: actions, strong: true}}
}

// ownModule reports whether a module is one of the project's own.
func (p *project) ownModule(top string) bool {
	for _, dir := range append(up(p.dir), path.Join(p.dir, "src")) {
		at := path.Join(dir, top)
		if p.isDir(at) || p.isFile(at+".py") || p.git.deleted()[at+".py"] || p.git.deleted()[at+"/__init__.py"] {
			return true
		}
	}
	return false
}

// record returns the list of the files of an installed distribution, and whether there
// is one.
func (p *project) record(env *venv, name string) (files [][]string, ok bool) {
	infos, _ := fs.Glob(p.root.FS(), env.site+"/*.dist-info")
	for _, info := range infos {
		base := path.Base(info)
		dist, _, _ := strings.Cut(base, "-")
		if pep503(dist) != name {
			continue
		}
		data, ok := p.read(path.Join(info, "RECORD"))
		if !ok {
			return nil, true
		}
		r := csv.NewReader(bytes.NewReader(data))
		r.FieldsPerRecord = -1
		all, err := r.ReadAll()
		if err != nil {
			return nil, true
		}
		return all, true
	}
	return nil, false
}

// recordDiffers reports whether a file of a list is absent or another one.
func (p *project) recordDiffers(env *venv, files [][]string) bool {
	for _, f := range files {
		if len(f) < 2 || !strings.HasSuffix(f[0], ".py") && !strings.HasSuffix(f[0], ".so") || p.ctx.Err() != nil {
			continue
		}
		rel := path.Join(env.site, f[0])
		want, ok := strings.CutPrefix(f[1], "sha256=")
		if !ok || !strings.HasPrefix(rel, env.dir+"/") {
			continue
		}
		in, err := p.root.Open(rel)
		if err != nil {
			return true
		}
		sum := sha256.New()
		_, err = io.Copy(sum, io.LimitReader(in, maxUnpacked))
		in.Close()
		if err == nil && strings.TrimRight(want, "=") != base64.RawURLEncoding.EncodeToString(sum.Sum(nil)) {
			return true
		}
	}
	return false
}

// pythonDamage: the innermost frame is in the virtual environment, and the distribution
// that the file is of is not what was installed.
func pythonDamage(p *project, groups map[string]string) []finding {
	env, w := p.venv(), p.wants()
	if env == nil || w == nil {
		return nil
	}
	name := p.innermost(env)
	files, _ := p.record(env, name)
	if name == "" || !p.recordDiffers(env, files) || !w.names[name] && w.tool == "pip" {
		return nil
	}
	actions := w.install(p, env, name)
	if actions == nil {
		return nil
	}
	return []finding{{why: "files of " + name + " in " + env.dir + " are damaged", actions: actions, strong: true}}
}
