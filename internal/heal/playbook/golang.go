package playbook

import (
	"path"
	"regexp"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

var goModuleForm = lazyregexp.New(`^[a-z0-9][a-z0-9.-]*\.[a-z]{2,}(?:/[A-Za-z0-9][A-Za-z0-9._~-]*)*$`)

// goModule: go.mod requires a module, and its sum is not in go.sum, or vendor/ is not what
// go.mod says. Neither changes which versions are used.
func goModule(p *project, groups map[string]string) []finding {
	dir, _ := p.findUp(p.dir, "go.mod")
	if dir == "" || !p.unlinked(path.Join(dir, "go.mod")) {
		return nil
	}
	mod, _ := p.read(path.Join(dir, "go.mod"))
	if groups["vendor"] != "" {
		vendor := path.Join(dir, "vendor")
		if p.git.tracks(vendor) || !p.unlinked(vendor) {
			return nil // it belongs to the project: a person has to look
		}
		return []finding{{why: vendor + " is not what go.mod says, and git does not track it", strong: true, actions: []Action{{
			Kind: Run, Argv: []string{"go", "mod", "vendor"}, Path: p.dirPath(dir), Aside: p.there(vendor), Reason: "make " + vendor + " again",
		}}}}
	}
	module := groups["module"]
	if !goModuleForm.MatchString(module) || len(module) > 200 {
		return nil
	}
	for name := module; strings.Contains(name, "/"); name = path.Dir(name) { // of a package, the module
		if !regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(name) + `\s+v\d`).Match(mod) {
			continue
		}
		return []finding{{why: "go.mod requires " + name + ", and go.sum lacks its sum", strong: true, actions: []Action{{
			Kind: Run, Argv: []string{"go", "mod", "download", name}, Path: p.dirPath(dir), Reason: "fetch " + name +
				" at the version of go.mod, and note its sum",
		}}}}
	}
	return nil
}

// there is a list of the path, if there is something.
func (p *project) there(rel string) []string {
	if p.exists(rel) {
		return []string{rel}
	}
	return nil
}
