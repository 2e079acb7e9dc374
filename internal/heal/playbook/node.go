package playbook

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// rules are the parts of the built-in books that look at the files.
var rules = map[string]rule{
	"node-package":   nodePackage,
	"node-program":   nodeProgram,
	"node-damage":    nodeDamage,
	"python-package": pythonPackage,
	"python-damage":  pythonDamage,
	"python-drift":   pythonDrift,
	"missing-venv":   missingVenv,
	"go-module":      goModule,
	"deleted-file":   deletedFile,
	"env-key":        envKey,
	"port-holder":    portHolder,
	"disk-full":      diskFull,
	"half-written":   halfWritten,
	"stale-cache":    staleCache,
}

var nodeName = lazyregexp.New(`^(?:@[A-Za-z0-9~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*$`)

// packageName is the package of what a program imports: x of x/y, @s/x of @s/x/y; "" for
// a path, a part of Node, and what is no name of a package.
func packageName(spec string) string {
	if spec == "" || len(spec) > 214 || strings.ContainsAny(spec[:1], "./#~-") || strings.Contains(spec, ":") {
		return ""
	}
	parts := strings.SplitN(spec, "/", 3)
	name := parts[0]
	if strings.HasPrefix(spec, "@") {
		if len(parts) < 2 {
			return ""
		}
		name += "/" + parts[1]
	}
	if !nodeName.MatchString(name) || strings.HasPrefix(path.Base(name), "-") || name == "node_modules" {
		return ""
	}
	return name
}

// nodePackage: what is imported is a package that the lock file holds, and it is not
// there.
func nodePackage(p *project, groups map[string]string) []finding {
	name := packageName(groups["pkg"])
	if name == "" {
		return nil
	}
	from := p.dir
	if rel, ok := p.below(groups["from"], p.dir); ok {
		from = path.Dir(rel)
	}
	lock := p.lock()
	if lock == nil || !lock.holds(p, name) || p.onlyForDevelopment(name, lock.dir) && p.Env["NODE_ENV"] == "production" {
		return nil
	}
	for _, dir := range up(from) {
		if path.Base(dir) == "node_modules" {
			continue
		}
		if home := path.Join(dir, "node_modules", name); p.isFile(path.Join(home, "package.json")) {
			if !p.damaged(home, lock) {
				return nil // it is there: the fault is another one
			}
		}
	}
	return lock.install(p, "the package "+name+" is in "+lock.file+", and not in node_modules")
}

// nodeProgram: a program of a package is not in node_modules/.bin.
func nodeProgram(p *project, groups map[string]string) []finding {
	name := path.Base(groups["program"])
	lock := p.lock()
	if lock == nil || !nodeName.MatchString(name) {
		return nil
	}
	if p.isFile(path.Join(p.dir, "node_modules/.bin", name)) || p.isFile(path.Join(lock.dir, "node_modules/.bin", name)) ||
		!lock.hasProgram(p, name) {
		return nil
	}
	return lock.install(p, "the program "+name+" comes with a package of "+lock.file+", and is not in node_modules")
}

// Errors that a published package has on another Node, or by what the project does to
// it; they are no damage.
var notDamage = lazyregexp.New(`Cannot use import statement|Unexpected token '?(?:export|import|\?\?=|\|\|=|&&=|\?\.|with|assert)|Unexpected identifier 'assert'|does not provide an export|Unexpected reserved word|await is only valid|require\(\) of ES Module`)

// Errors of files that were cut short, or that are of another machine.
var cutShort = lazyregexp.New(`Unexpected end of|Invalid or unexpected token|missing \) after argument list|Unterminated|Expected double-quoted property|in JSON at position|Invalid package config|Missing initializer|Unexpected token '?(?:[})\]]|\\u0000)`)

// inSource is how esbuild, tsx, Vite and others say where in a source the fault is.
var inSource = lazyregexp.New(`(?m)^[^\S\n]*(?:\S* ?\[?ERROR\]?:? )?([^\s:]+\.[a-z]{1,6}):\d+:\d+: `)

// blamesSource reports whether the error names a place in a file of the project itself: then no
// package is at fault, whatever raises it.
func (p *project) blamesSource() bool {
	for _, m := range inSource.FindAllStringSubmatch(p.report, maxMatches) {
		rel, ok := p.below(m[1], p.dir)
		if ok && !strings.Contains("/"+rel, "/node_modules/") && p.isFile(rel) {
			return true
		}
	}
	return false
}

// nodeDamage: the error was raised within node_modules, and the files of that package are
// not those that were installed.
func nodeDamage(p *project, groups map[string]string) []finding {
	if p.blamesSource() {
		return nil
	}
	file := groups["file"]
	if file == "" {
		at, ok := p.first()
		if !ok {
			return nil
		}
		file = at.file
	}
	rel, ok := p.below(file, p.dir)
	if !ok {
		return nil
	}
	dir, name := packageOf(rel)
	lock := p.lock()
	if name == "" || lock == nil || !p.unlinkedUpTo(dir) {
		return nil
	}
	why := "files of the package " + name + " are damaged"
	if p.damaged(dir, lock) {
		return lock.install(p, why)
	}
	if p.pristine(dir, lock) {
		return nil // byte by byte what was installed: the fault is another one
	}
	weak := groups["native"] != "" || groups["gone"] != "" && !p.exists(rel) || strings.Contains(p.report, "SyntaxError") &&
		cutShort.MatchString(p.report) && !notDamage.MatchString(p.report)
	if !weak {
		return nil
	}
	found := lock.install(p, why)
	for i := range found {
		found[i].strong = groups["gone"] != "" || groups["native"] != ""
	}
	return found
}

// unlinkedUpTo reports whether the node_modules that a package is in is a real directory.
func (p *project) unlinkedUpTo(dir string) bool {
	at := strings.Index(dir+"/", "node_modules/")
	return at >= 0 && p.unlinked(dir[:at]+"node_modules")
}

// manifest is what is read of a package.json.
type manifest struct {
	Main            any               `json:"main"`
	PackageManager  string            `json:"packageManager"`
	Dependencies    map[string]string `json:"dependencies"`
	DevDependencies map[string]string `json:"devDependencies"`
	Optional        map[string]string `json:"optionalDependencies"`
}

func (p *project) manifest(dir string) (m manifest, ok bool) {
	data, ok := p.read(path.Join(dir, "package.json"))
	return m, ok && json.Unmarshal(data, &m) == nil
}

// onlyForDevelopment reports whether the package.json of the service, or that of the lock file,
// wants a package only to develop with.
func (p *project) onlyForDevelopment(name, lockDir string) bool {
	for _, dir := range slices.Compact([]string{p.dir, lockDir}) {
		m, _ := p.manifest(dir)
		_, plain := m.Dependencies[name]
		_, dev := m.DevDependencies[name]
		if plain {
			return false
		}
		if dev {
			return true
		}
	}
	return false
}

// damaged reports whether files of an installed package are plainly not those that were
// published: its package.json cannot be read, its main file is gone, a program file is
// empty, or it differs from the archive that the lock file names.
func (p *project) damaged(dir string, lock *lock) bool {
	m, ok := p.manifest(dir)
	if !ok {
		return p.isDir(dir)
	}
	if differs, known := lock.compare(p, dir); known {
		return differs
	}
	main, _ := m.Main.(string)
	if main == "" {
		return false
	}
	at := path.Join(dir, main)
	if !strings.HasPrefix(at, dir+"/") {
		return false
	}
	for _, end := range []string{"", ".js", ".cjs", ".mjs", ".json", ".node", "/index.js", "/index.cjs", "/index.json", "/index.node"} {
		if st, err := p.root.Stat(at + end); err == nil && st.Mode().IsRegular() {
			return st.Size() == 0
		}
	}
	return false // packages of types alone name a main file that they do not have
}

// pristine reports whether an installed package is byte by byte what was published.
func (p *project) pristine(dir string, lock *lock) bool {
	differs, known := lock.compare(p, dir)
	return known && !differs
}
