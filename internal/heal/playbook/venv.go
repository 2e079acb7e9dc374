package playbook

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// missingVenv: the command is of a virtual environment that is gone, or whose interpreter is.
func missingVenv(p *project, groups map[string]string) []finding {
	rel, ok := p.below(groups["venv"], p.dir)
	if !ok || !plainPath(rel) || !p.unlinked(rel) || !p.inCommand(rel) || p.git.tracks(rel) {
		return nil
	}
	w := p.wants()
	if w == nil {
		return nil
	}
	var aside []string
	if p.exists(rel) {
		switch {
		case !p.isFile(path.Join(rel, "pyvenv.cfg")):
			return nil // it is something else
		case p.interpreted(rel):
			return nil // only a program of it is missing
		}
		aside = []string{rel}
	}
	dir := path.Dir(w.file)
	made := &venv{dir: rel, site: path.Join(rel, "lib")}
	install := w.install(p, made, "")
	if install == nil || w.tool != "pip" && rel != path.Join(dir, ".venv") {
		return nil // the tool would make another one
	}
	first := Action{Kind: Run, Argv: []string{"python3", "-m", "venv", path.Join(p.Root, rel)}, Path: p.dirPath(dir), Aside: aside,
		Reason: "make " + rel, Makes: rel}
	actions := append([]Action{first}, install...)
	if w.tool == "uv" { // makes it by itself, with the interpreter that the project names
		actions = install
		actions[0].Aside = aside
	}
	return []finding{{why: "the virtual environment " + rel + " of the command is not there, or its interpreter is not", actions: actions,
		strong: true}}
}

// inCommand reports whether the command, or its environment, is of a virtual environment.
func (p *project) inCommand(rel string) bool {
	is := func(place string) bool {
		at, ok := p.below(place, p.dir)
		return ok && at == rel
	}
	first, _, _ := strings.Cut(p.Env["PATH"], ":")
	return is(p.Env["VIRTUAL_ENV"]) || is(strings.TrimSuffix(first, "/bin")) || slices.ContainsFunc(p.words(), func(word string) bool {
		place, _, ok := strings.Cut(word, "/bin/")
		return ok && is(place)
	})
}

// interpreted reports whether an environment has an interpreter, to which links out of the
// project lead.
func (p *project) interpreted(rel string) bool {
	st, err := os.Stat(path.Join(p.Root, rel, "bin/python"))
	return err == nil && st.Mode().IsRegular()
}

// pythonDrift: what the error is about is of a distribution that is installed in another
// version than the lock file, or the list by ==, has.
func pythonDrift(p *project, groups map[string]string) []finding {
	w, env := p.wants(), p.venv()
	if w == nil || env == nil {
		return nil
	}
	name := ""
	if module := groups["module"]; module != "" {
		if top, _, _ := strings.Cut(module, "."); !moduleForm.MatchString(module) || p.ownModule(top) {
			return nil
		}
		name = w.distribution(module)
	} else if name = p.innermost(env); name == "" {
		return nil
	}
	want := w.versions[name]
	has := p.installed(env, name)
	if want == "" || has == "" || sameVersion(want, has) {
		return nil
	}
	actions := w.install(p, env, name)
	if w.tool == "pip" { // the whole list anew would be more than is wrong
		actions[0].Argv = append(slices.Clone(actions[0].Argv[:len(actions[0].Argv)-2]), name+"=="+want)
		actions[0].Reason = "install " + name + " " + want
	} else if actions == nil { // poetry and pipenv put right what differs by themselves
		actions = w.install(p, env, "")
	}
	if actions == nil {
		return nil
	}
	why := name + " " + has + " is installed in " + env.dir + ", and " + w.file + " has " + want
	return []finding{{why: why, actions: actions, strong: true}}
}

// innermost is the distribution of the innermost frame; "": that is of the project itself.
func (p *project) innermost(env *venv) string {
	for _, at := range p.frames() {
		if strings.HasPrefix(at.file, "<frozen ") {
			continue
		}
		rel, ok := p.below(at.file, p.dir)
		inner, within := strings.CutPrefix(rel, env.site+"/")
		if !ok || !within {
			return ""
		}
		infos, _ := fs.Glob(p.root.FS(), env.site+"/*.dist-info")
		for _, info := range infos {
			dist, _, _ := strings.Cut(path.Base(info), "-")
			files, _ := p.record(env, pep503(dist))
			if slices.ContainsFunc(files, func(f []string) bool { return f[0] == inner }) {
				return pep503(dist)
			}
		}
		return ""
	}
	return ""
}

// installed is the version of a distribution; "": it is not installed.
func (p *project) installed(env *venv, name string) string {
	infos, _ := fs.Glob(p.root.FS(), env.site+"/*.dist-info")
	for _, info := range infos {
		dist, version, ok := strings.Cut(strings.TrimSuffix(path.Base(info), ".dist-info"), "-")
		if ok && pep503(dist) == name {
			return version
		}
	}
	return ""
}

var zeros = lazyregexp.New(`(\.0)+$`)

// sameVersion compares versions as PEP 440 does, as far as it is needed: 1.2 is 1.2.0.
func sameVersion(a, b string) bool {
	plain := func(v string) string {
		v, _, _ = strings.Cut(strings.ToLower(strings.TrimPrefix(strings.TrimSpace(v), "v")), "+")
		return zeros.ReplaceAllString(v, "")
	}
	return plain(a) == plain(b)
}
