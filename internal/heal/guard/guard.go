package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	// MaxFile is the most bytes that one call reads or writes.
	MaxFile = 1 << 20
	// maxPath is the most bytes of a path, links resolved or not.
	maxPath = 4095
	// maxLinks is how many symbolic links one path may lead through, as Linux has it.
	maxLinks = 40
)

// envRule names the rule of files of variables.
const envRule = ".env*"

// ErrTooLarge is the error of a write of more than [MaxFile] bytes.
var ErrTooLarge = errors.New("is larger than 1 MiB, the most that the healer writes")

// DeniedError: a rule forbids the access.
type DeniedError struct {
	Path   string // as it was asked for
	Rule   string // the glob, or "root", "kind", "path", "links", "values"
	Reason string // completes "the healer may not touch PATH: "
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("%.200q is denied by the rule %q: %s", e.Path, e.Rule, e.Reason)
}

// Config of a guard.
type Config struct {
	Root      string   // absolute path of the directory
	Protected []string // globs below Root, with slashes and **: read, not changed. That of a directory protects what is in it
	Files     []string // absolute paths of what is protected besides: the tend.yaml in use, the state directory
	Hidden    []string // absolute paths of what is neither read nor changed, with all below
	// Allowed: a person has allowed the access, so only the rules without [ErrAsk] apply.
	// Files with several hard links are denied, and so are links on the way to what is read,
	// written or listed.
	Allowed bool
}

// Guard is a directory with its rules. Its methods may be called from several
// goroutines.
type Guard struct {
	root  *os.Root
	names []string // absolute paths of the root: as given, and without links
	rules []rule
	// allowed is that of the configuration. Nobody looks for other names of a file then.
	allowed bool
}

// Open opens the directory of a project. Close releases it.
func Open(c Config) (*Guard, error) {
	if !filepath.IsAbs(c.Root) {
		return nil, fmt.Errorf("the root %q of the healer is not an absolute path", c.Root)
	}
	rules := always()
	for _, glob := range c.Protected {
		r, err := newRule(glob)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	name := filepath.Clean(c.Root)
	names := []string{name}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, fmt.Errorf("open the healer's root: %w", err)
	}
	if real != name {
		names = append(names, real)
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, fmt.Errorf("open the healer's root: %w", err)
	}
	g := &Guard{root: root, names: names, allowed: c.Allowed}
	for _, file := range c.Files {
		g.addFile(file, &rules)
	}
	for _, path := range c.Hidden {
		g.noneIn(path, &rules)
	}
	if c.Allowed {
		rules = slices.DeleteFunc(rules, func(r rule) bool { return r.ask })
	}
	g.rules = rules
	return g, nil
}

// addFile protects a file by its path, and by the path that it has without links.
func (g *Guard) addFile(file string, rules *[]rule) {
	paths := []string{filepath.Clean(file)}
	if real, err := filepath.EvalSymlinks(file); err == nil {
		paths = append(paths, real)
	}
	for _, p := range paths {
		if rel, ok := g.below(p); ok && rel != "." {
			*rules = append(*rules, rule{glob: strings.ToLower(quote(rel)), name: rel, write: true, ask: true, reason: "tend itself depends on it"})
		}
	}
}

// quote makes a glob that matches one path.
func quote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `{`, `\{`).Replace(path)
}

// Close releases the directory.
func (g *Guard) Close() error { return g.root.Close() }

// Check reports whether a file may be read, or changed, and returns its real path below the
// root, with slashes. A file that does not exist yet is no error: the path is that at which
// it would be created. The answer of Check is valid only at that moment; the other methods
// check what they open.
func (g *Guard) Check(name string, write bool) (string, error) {
	t, err := g.find(name)
	if err != nil {
		return "", err
	}
	defer t.close()
	if write {
		err = g.allowChange(name, t)
	} else {
		err = g.allow(name, t, false)
	}
	if err != nil {
		return "", err
	}
	return t.rel(), nil
}

// below returns the path of an absolute one below the root.
func (g *Guard) below(abs string) (string, bool) {
	for _, root := range g.names {
		if abs == root {
			return ".", true
		}
		if rest, ok := strings.CutPrefix(abs, strings.TrimSuffix(root, string(filepath.Separator))+string(filepath.Separator)); ok {
			return filepath.ToSlash(rest), true
		}
	}
	return "", false
}

// target is where a path leads: a name in a directory that is open.
type target struct {
	dir  *os.Root // of the file; the guard's own root for "."
	base string   // "." for the root itself
	path []string // of the directory, below the root
	info fs.FileInfo
	// missing are the directories that do not exist, between dir and the file.
	missing []string
	own     []*os.Root // what close closes
	was     string     // the sum of its content before it is written; "": whatever it was
}

func (t *target) rel() string {
	return path.Join(append(append(append([]string{}, t.path...), t.missing...), t.base)...)
}

func (t *target) close() {
	for _, r := range t.own {
		r.Close()
	}
}

// find walks to a path. Each directory is opened in the one before, and must then be
// what it was seen to be; links are read and followed as text. So the real path is that of the
// directories which are open, whatever is swapped meanwhile.
func (g *Guard) find(name string) (_ *target, err error) {
	todo, err := g.parts(name, name)
	if err != nil {
		return nil, err
	}
	t := &target{dir: g.root, base: "."}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(t.missing) > 0 {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			if len(t.path) == 0 {
				return nil, outside(name, "it leads out of the project")
			}
			t.path = t.path[:len(t.path)-1]
			t.own[len(t.own)-1].Close()
			t.own = t.own[:len(t.own)-1]
			t.dir = g.root
			if n := len(t.own); n > 0 {
				t.dir = t.own[n-1]
			}
			continue
		}
		last := len(rest(todo)) == 0
		if len(t.missing) > 0 {
			if last {
				t.base = part
				return t, nil
			}
			t.missing = append(t.missing, part)
			continue
		}
		info, err := t.dir.Lstat(part)
		switch {
		case errors.Is(err, fs.ErrNotExist) && last:
			t.base = part
			return t, nil
		case errors.Is(err, fs.ErrNotExist):
			t.missing = append(t.missing, part)
			continue
		case err != nil:
			return nil, err
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return nil, &DeniedError{name, "links", "it leads through more than 40 links"}
			}
			to, err := t.dir.Readlink(part)
			if err != nil {
				return nil, err
			}
			if filepath.IsAbs(to) { // from the root on
				for _, r := range t.own {
					r.Close()
				}
				t.own, t.path, t.dir = nil, nil, g.root
			}
			parts, err := g.parts(name, to)
			if err != nil {
				return nil, err
			}
			if todo = append(parts, todo...); len(todo) > maxPath {
				return nil, &DeniedError{name, "links", "its links lead too far"}
			}
			continue
		case last && !info.IsDir():
			t.base, t.info = part, info
			return t, nil
		case !info.IsDir():
			return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is below a file")}
		}
		next, err := openDir(t.dir, part, info)
		if err != nil {
			return nil, err
		}
		t.own = append(t.own, next)
		t.dir, t.path = next, append(t.path, part)
	}
	if t.info, err = t.dir.Stat("."); err != nil {
		return nil, err
	}
	return t, nil
}

// openDir opens a directory in another, and makes sure that it is the one that was seen.
func openDir(in *os.Root, name string, seen fs.FileInfo) (*os.Root, error) {
	dir, err := in.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	info, err := dir.Stat(".")
	if err == nil && !os.SameFile(info, seen) {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("was replaced at this moment; try again")}
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// rest leaves out what names no component.
func rest(parts []string) []string {
	for len(parts) > 0 && (parts[0] == "" || parts[0] == ".") {
		parts = parts[1:]
	}
	return parts
}

// parts splits a path; an absolute one must be below the root.
func (g *Guard) parts(asked, name string) ([]string, error) {
	switch {
	case name == "":
		return nil, &DeniedError{asked, "path", "it is empty"}
	case len(name) > maxPath:
		return nil, &DeniedError{asked, "path", fmt.Sprintf("it has %d bytes; the limit is %d", len(name), maxPath)}
	case strings.IndexByte(name, 0) >= 0:
		return nil, &DeniedError{asked, "path", "it has a NUL byte"}
	}
	if filepath.IsAbs(name) {
		rel, ok := g.below(filepath.Clean(name))
		if !ok || strings.Contains(filepath.ToSlash(name)+"/", "/../") {
			return nil, outside(asked, "it is outside of the project; name it by its path in the project")
		}
		name = rel
	}
	return strings.Split(filepath.ToSlash(name), "/"), nil
}

// rule is a glob in lower case, and what it denies.
type rule struct {
	glob   string
	name   string // as it was written
	read   bool   // denies reading
	write  bool
	ask    bool // a person may allow it
	reason string
}

func newRule(glob string) (rule, error) {
	g := strings.TrimSuffix(strings.TrimPrefix(glob, "./"), "/")
	if g == "" || strings.HasPrefix(g, "/") || strings.IndexByte(g, 0) >= 0 || !doublestar.ValidatePattern(strings.ToLower(g)) {
		return rule{},
			fmt.Errorf("the protected glob %q is not one: write a path below the root, with * for a part of a name and ** for any directories", glob)
	}
	return rule{glob: strings.ToLower(g), name: glob, write: true, ask: true,
		reason: "it is protected by the configuration; change something else"}, nil
}

// always are the rules that hold without configuration.
func always() (rules []rule) {
	deny := func(reason string, read bool, globs ...string) {
		for _, g := range globs {
			rules = append(rules, rule{glob: "**/" + g, name: g, read: read, write: true, reason: reason})
		}
	}
	deny("it belongs to git", true, ".git")
	deny("it belongs to tend", true, ".tend")
	deny("keys and logins are kept there", true, keysAndLogins...)
	before := len(rules)
	deny("it decides what git does to other files", false, ".gitattributes", ".gitmodules")
	for i := range rules[before:] {
		rules[before+i].ask = true
	}
	return rules
}

// match reports whether the rule is about a path, or about a directory above it.
func (r rule) match(rel string) bool {
	return doublestar.MatchUnvalidated(r.glob, rel) || doublestar.MatchUnvalidated(r.glob+"/**", rel)
}

// denied returns the rule that forbids to read or change a path.
func (g *Guard) denied(rel string, write bool) *rule {
	rel = strings.ToLower(rel)
	of := path.Join(path.Dir(rel), original(path.Base(rel)))
	for i, r := range g.rules {
		if (write && r.write || !write && r.read) && (r.match(rel) || of != rel && r.match(of)) {
			return &g.rules[i]
		}
	}
	return nil
}

// allow applies the rules to what was found.
func (g *Guard) allow(asked string, t *target, write bool) error {
	rel := t.rel()
	if r := g.denied(rel, write); r != nil {
		return r.refuse(asked)
	}
	if t.info == nil {
		return nil
	}
	mode := t.info.Mode()
	if !mode.IsRegular() && !mode.IsDir() {
		return &DeniedError{asked, "kind", "it is no regular file"}
	}
	if write && mode.IsDir() {
		return &DeniedError{asked, "kind", "it is a directory"}
	}
	if mode.IsRegular() && links(t.info) > 1 {
		if g.allowed {
			return &DeniedError{asked, "links", "it has several names"}
		}
		return g.allowLinked(asked, t, write)
	}
	return nil
}

// envFile reports whether the values of the file are hidden.
func (t *target) envFile() bool { return t.base != "." && IsEnv(t.base) }

// IsEnv reports whether a name is that of a file of variables with secret values.
func IsEnv(base string) bool {
	base = original(strings.ToLower(base))
	name, suffix := strings.CutSuffix(base, ".env") // prod.env
	if !suffix && base != ".envrc" && !strings.HasPrefix(base, ".env.") && !strings.HasPrefix(base, ".env-") &&
		!strings.HasPrefix(base, ".env_") {
		return false
	}
	for _, sample := range []string{"example", "sample", "template", "dist", "defaults"} {
		if strings.HasSuffix(base, "."+sample) || suffix && (name == sample || strings.HasSuffix(name, "."+sample)) {
			return false
		}
	}
	return true
}
