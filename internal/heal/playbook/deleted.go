package playbook

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// sourceEnds are what an import leaves out of the name of a file.
var sourceEnds = []string{
	"", ".js", ".ts", ".tsx", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".json", ".node", ".vue", ".svelte", ".css", ".scss", ".d.ts",
	"/index.js", "/index.ts", "/index.tsx", "/index.jsx", "/index.mjs", "/index.cjs", "/index.json",
}

// tsFor are the names of the source of what a TypeScript program imports.
var tsFor = map[string][]string{".js": {".ts", ".tsx"}, ".jsx": {".tsx"}, ".mjs": {".mts"}, ".cjs": {".cts"}}

const maxRestored = 200 // files of one directory

// deletedFile: the error names a file that git tracks and that is gone though nobody told
// git. A group says how it is named: "file" as a path, "spec" as an import of "from" (or
// of a frame of the report), "module" as Python has it, "name" as a template.
func deletedFile(p *project, groups map[string]string) []finding {
	gone := p.git.deleted()
	if len(gone) == 0 {
		return nil
	}
	found := p.named(groups)
	for _, c := range found { // by a link of the project that leads to what is gone
		if real := p.behindLinks(c); real != c && !slices.Contains(found, real) {
			found = append(found, real)
		}
	}
	rel := ""
	for _, c := range found {
		if p.gone(c) {
			rel = c
			break
		}
	}
	// A tracked link in place of a directory on its way may be what is gone.
	for i := 0; rel == "" && i < len(found); i++ {
		for dir := path.Dir(found[i]); rel == "" && dir != "."; dir = path.Dir(dir) {
			if p.gone(dir) {
				rel = dir
			}
		}
	}
	if rel == "" {
		return p.deletedDirectory(gone, found)
	}
	one := finding{why: "the error names " + rel + ", which git tracks and which is gone", strong: true,
		actions: []Action{{Kind: Restore, Path: rel, Reason: "restore " + rel + " from git"}}}
	// All of its directory is gone: others of it are named only when it is back.
	dir := path.Dir(rel)
	for dir != "." && !p.exists(path.Dir(dir)) {
		dir = path.Dir(dir)
	}
	if dir == "." || p.exists(dir) {
		return []finding{one}
	}
	all := finding{why: "the error names " + rel + ", and all of " + dir + ", which git tracks, is gone", strong: true}
	var names []string
	for name := range gone {
		if strings.HasPrefix(name, dir+"/") && p.gone(name) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	if len(names) < 2 || len(names) > maxRestored {
		return []finding{one}
	}
	for _, name := range names {
		all.actions = append(all.actions, Action{Kind: Restore, Path: name, Reason: "restore " + name + " from git"})
	}
	return []finding{one, all}
}

// deletedDirectory: what is named is a directory, and all that git tracks in it is gone.
func (p *project) deletedDirectory(gone map[string]bool, found []string) []finding {
	for _, dir := range found {
		if p.exists(dir) {
			continue
		}
		f := finding{why: "the error names " + dir + ", and all of it, which git tracks, is gone", strong: true}
		for _, name := range slices.Sorted(maps.Keys(gone)) {
			if strings.HasPrefix(name, dir+"/") && p.gone(name) {
				f.actions = append(f.actions, Action{Kind: Restore, Path: name, Reason: "restore " + name + " from git"})
			}
		}
		if n := len(f.actions); n > 0 && n <= maxRestored {
			return []finding{f}
		}
	}
	return nil
}

// named returns the paths that an error may mean, the likeliest first.
func (p *project) named(groups map[string]string) (found []string) {
	add := func(rel string, ok bool) {
		if ok && !slices.Contains(found, rel) {
			found = append(found, rel)
		}
	}
	source := func(rel string, ok bool) {
		if !ok {
			return
		}
		for _, end := range sourceEnds {
			add(rel+end, true)
		}
		for _, end := range tsFor[path.Ext(rel)] {
			add(strings.TrimSuffix(rel, path.Ext(rel))+end, true)
		}
	}
	switch {
	case groups["file"] != "":
		for _, dir := range p.importers(groups["from"]) {
			source(p.below(groups["file"], dir))
		}
	case strings.HasPrefix(groups["spec"], "."):
		for _, dir := range p.importers(groups["from"]) {
			source(p.below(groups["spec"], dir))
		}
	case groups["spec"] != "":
		// An alias: @/lib/x and the like. Its end must be that of just one file.
		if _, rest, ok := strings.Cut(groups["spec"], "/"); ok && strings.ContainsAny(groups["spec"][:1], "@~#") {
			add(p.onlyOne(rest))
		}
	case moduleForm.MatchString(groups["module"]):
		at := strings.ReplaceAll(groups["module"], ".", "/")
		if sub := groups["sub"]; nameForm.MatchString(sub) {
			at += "/" + sub
		}
		for _, dir := range append(p.importers(""), path.Join(p.dir, "src"), p.dir) {
			for _, end := range []string{".py", "/__init__.py", "/__main__.py"} {
				add(p.below(at+end, dir))
			}
		}
	case groups["name"] != "":
		add(p.onlyOne(groups["name"]))
	case nameForm.MatchString(groups["gosym"]):
		add(p.goSource(groups["gosym"], groups["goin"]))
	case groups["gopkg"] != "":
		add(p.goPackage(groups["gopkg"]))
	}
	return found
}

// importers are the directories of the file that a report says is the importing one, of
// its frames, and of the service.
func (p *project) importers(from string) (dirs []string) {
	put := func(file string) {
		rel, ok := p.below(file, p.dir)
		if _, inPackage := packageOf(rel); ok && inPackage == "" && !slices.Contains(dirs, path.Dir(rel)) {
			dirs = append(dirs, path.Dir(rel))
		}
	}
	if from != "" {
		put(from)
		return dirs
	}
	if !slices.Contains(dirs, p.dir) {
		dirs = append(dirs, p.dir)
	}
	for _, at := range p.frames() {
		put(at.file)
	}
	return dirs
}

// onlyOne returns the deleted file that ends with these words of a path, if it is the only
// one, and no file that is there does.
func (p *project) onlyOne(name string) (string, bool) {
	name = path.Clean(name)
	if !plainPath(name) || name == "." {
		return "", false
	}
	var found []string
	for rel := range p.git.deleted() {
		for _, end := range sourceEnds {
			if rel == name+end || strings.HasSuffix(rel, "/"+name+end) {
				found = append(found, rel)
				break
			}
		}
	}
	if len(found) != 1 {
		return "", false
	}
	return found[0], true
}

// goSource returns the deleted file of a package that declares a name at its top, which a file
// beside it uses.
func (p *project) goSource(name, user string) (string, bool) {
	at, ok := p.below(user, p.dir)
	if !ok {
		return "", false
	}
	declares, err := regexp.Compile(`(?m)^(?:func |type |(?:var |const )?\t?)` + regexp.QuoteMeta(name) + `\b`)
	if err != nil {
		return "", false
	}
	for _, rel := range slices.Sorted(maps.Keys(p.git.deleted())) {
		if path.Dir(rel) != path.Dir(at) || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			continue
		}
		if text, ok := p.git.staged(rel); ok && declares.Match(text) {
			return rel, true
		}
	}
	return "", false
}

var goModuleLine = lazyregexp.New(`(?m)^module\s+(\S+)`)

// goPackage returns the first deleted file of a package of the project's own module.
func (p *project) goPackage(pkg string) (string, bool) {
	dir, _ := p.findUp(p.dir, "go.mod")
	if dir == "" {
		return "", false
	}
	text, _ := p.read(path.Join(dir, "go.mod"))
	m := goModuleLine.FindSubmatch(text)
	if m == nil {
		return "", false
	}
	rest, ok := strings.CutPrefix(pkg, string(m[1])+"/")
	if !ok {
		return "", false
	}
	rel, ok := p.below(rest, dir)
	if !ok || p.exists(rel) {
		return "", false
	}
	var files []string
	for name := range p.git.deleted() {
		if path.Dir(name) == rel && strings.HasSuffix(name, ".go") {
			files = append(files, name)
		}
	}
	if len(files) == 0 {
		return "", false
	}
	sort.Strings(files)
	return files[0], true
}
